# The tests that `make SANITIZE=1 test` leaves out, because other tests run the same code under the sanitizers: programs as
# users run them; whole models that are compared with PyTorch's, and a model larger than the one whose training on emu is
# compared with the CPU's; processes under MPI, whose libraries leak memory; counts of the bytes of large models on meta,
# which has no data; statistics; the memory of a process, of which the sanitizers need a part; measurements of this CPU's
# peak; the course's tools, which do not run the engine; and GPU threads in orders other than the first.
NOT_SANITIZED := $(patsubst %,tests/%_test.cpp,lessons/programs lessons/04_program lessons/04_published_runs \
  lessons/05_program nn/golden nn/golden_llama nn/models train/memory_need memory/allocator_published parallel/comm/mpi lessons/22_program lessons/22_same) \
  $(wildcard tests/course/*_test.cpp)
MPI := 0
export LEAVE_OUT := */emu_reverse:*/emu_shuffled:*.TokensComeAsOftenAsTheModelSays:*.AHeaderOfManyValues*:*.LongHeaders*:*.AMillionEvents*:L13_Programs.*
LEAVE_OUT := $(LEAVE_OUT):L03_Devices.EveryDeviceNeedsTheSameBytes*:L03_ReportTime.OfMetaIsThatOfOtherMachines:L01_Machine.*Peak*
# And the slowest tests whose kernels and ops shorter tests run, too: on emu an op in 16-bit types, optimizers and a search
# that are compared with golden values, steps of Muon and 8-bit AdamW, gradient norms in the settings of lessons 9 and 18;
# tables of bytes and network times; a model that learns; two models with dropout; caches of grouped heads that are compared
# with whole passes on emu; models whose chains are compiled; attention of 8,191 tokens, or at many lengths.
LEAVE_OUT := $(LEAVE_OUT):$(subst $() ,:,$(patsubst %,*L12_LinearQuantized.%*/emu_??16,Outputs Gradients Flops Numbers))
LEAVE_OUT := $(LEAVE_OUT):*L06_Golden.*/emu:*L04_Generate.Beam*/emu:*L06_MuonOptimizer.AStep*/emu:*L11_AdamW8bit.AWeightWhose*/emu
LEAVE_OUT := $(LEAVE_OUT):*L09_GradNorm.*/emu:*L18_GradNorm.*InTwoSums/emu:L18_ZeroBytes.AreKept*:L18_WhatIf.*:L17_Scaling.*EachNetwork*:L17_Scaling.A*PublishedRun*
LEAVE_OUT := $(LEAVE_OUT):L04_Precision.*Bytes*:L04_Precision.MixedLearns*:L18_Tables.*StatesAre*:L03_TwoModels.WithDropout*
LEAVE_OUT := $(LEAVE_OUT):*L15_FlashLengths.*:L15_FlashGradients.*:*L16_ChainsOfAModel.*:L16_Chains.OfTwoModels*:*L21_KvCache.LogitsOf*/emu:L20_Layout.AllOfEightRanks:L20_LayoutModels.*:L20_PlanSeconds.*
