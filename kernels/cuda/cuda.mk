# CUDA=1, part of the Makefile: the toolkit, the GPU architectures, and a separate build tree.
BUILD     := build/cuda
CUDA_HOME ?= $(or $(patsubst %/bin/nvcc,%,$(realpath $(shell command -v nvcc))),/usr/local/cuda)
NVCC      := $(CUDA_HOME)/bin/nvcc
CUDA_VERSION := $(shell $(NVCC) --version 2>/dev/null | sed -n 's/.*release \([0-9.]*\).*/\1/p')
ifeq ($(CUDA_VERSION),)
$(error CUDA=1: there is no $(NVCC); install the CUDA toolkit (12 or later) or say where it is \
(CUDA_HOME=FOLDER); without CUDA=1 everything but the device cuda is built)
endif
ifneq ($(filter 9.% 10.% 11.%,$(CUDA_VERSION)),)
$(error CUDA=1: $(NVCC) is of CUDA $(CUDA_VERSION), which does not support C++20; install CUDA 12 or later)
endif
ifeq ($(SANITIZE),1)
$(error CUDA=1 and SANITIZE=1 cannot be combined; SANITIZE=1 without CUDA=1 checks the kernels on emu)
endif
# The list of SM, by default one for each generation from Turing on that this nvcc knows. Code for 8.0 runs on
# all 8.x, and so on.
SM_KNOWN := $(patsubst sm_%,%,$(shell $(NVCC) --list-gpu-code))
SM_LIST  := $(or $(patsubst sm_%,%,$(SM)),$(patsubst 90,90a,$(filter $(SM_KNOWN),75 80 90 120)))
SM_UNKNOWN := $(filter-out $(SM_KNOWN),$(patsubst %f,%,$(patsubst %a,%,$(SM_LIST))))
ifneq ($(SM_UNKNOWN),)
$(error CUDA=1: $(NVCC) of CUDA $(CUDA_VERSION) does not know SM=$(SM_UNKNOWN); it knows $(SM_KNOWN). \
Older GPUs need an older toolkit (CUDA_HOME=FOLDER), newer GPUs a newer one)
endif
SM_PTX   := $(filter-out %a %f,$(firstword $(SM_LIST)))
NVCCFLAGS := -std=c++20 -O3 -lineinfo --expt-relaxed-constexpr -ccbin '$(CXX)' -Xcompiler -Wall,-Wextra \
  $(foreach sm,$(SM_LIST),-gencode arch=compute_$(sm),code=sm_$(sm)) \
  $(foreach sm,$(SM_PTX),-gencode arch=compute_$(sm),code=compute_$(sm))
CPPFLAGS += -DGRADUS_CUDA -I$(CUDA_HOME)/include
LDLIBS   += -L$(CUDA_HOME)/lib64 -Wl,-rpath,$(CUDA_HOME)/lib64 -lcublas -lcudart_static -ldl -lrt
CHOICE   := ; with CUDA $(CUDA_VERSION) from $(CUDA_HOME) for SM="$(SM_LIST)"
# NCCL, for ranks that are processes, if the toolkit or the system has it.
ifneq ($(wildcard $(CUDA_HOME)/include/nccl.h /usr/include/nccl.h),)
CPPFLAGS += -DGRADUS_NCCL
NCCL     := -lnccl
endif

# cuDNN's attention. Its front end has only headers; a program searches for the library when it runs, first in
# CUDNN_HOME. The one file that includes the headers takes a minute to compile.
ifneq ($(CUDNN_FRONTEND),)
CUDNN_HOME ?= $(CUDA_HOME)
CUDNN_INCLUDE := $(foreach file,cudnn_frontend.h cudnn.h,$(or $(patsubst %/$(file),%,$(firstword $(wildcard \
  $(foreach home,$(CUDNN_FRONTEND) $(CUDNN_HOME),$(home)/include/$(file) $(home)/$(file))))),$(error \
  CUDA=1: there is no $(file) in CUDNN_FRONTEND=$(CUDNN_FRONTEND) or CUDNN_HOME=$(CUDNN_HOME); NVIDIA's packages \
  nvidia-cudnn-frontend and nvidia-cudnn-cu$(firstword $(subst ., ,$(CUDA_VERSION))) of pip have it in a folder include)))
CPPFLAGS += -DGRADUS_CUDNN
$(BUILD)/obj/kernels/cuda.o: private CPPFLAGS += $(CUDNN_INCLUDE:%=-isystem %)
LDLIBS   := -Wl,-rpath,$(abspath $(CUDNN_HOME))/lib64:$(abspath $(CUDNN_HOME))/lib $(LDLIBS)
CHOICE   := $(CHOICE), and cuDNN's front end from $(firstword $(CUDNN_INCLUDE))
endif
