# What `make SANITIZE=1 test` leaves out, because others run the same code under the sanitizers: programs as a
# user runs them, whole models beside PyTorch's, and a larger model than that of which emu's training is compared
# with the CPU's; processes under MPI, whose libraries leave memory behind; what counts the bytes of large models on meta, where there is no data to run over; statistics; how
# much memory a process takes, of which the sanitizers have their part; what measures this CPU's peak; the course's tools,
# which run none of the engine; and GPU threads in other orders than the first.
NOT_SANITIZED := $(patsubst %,tests/%_test.cpp,lessons/programs lessons/04_program lessons/04_published_runs \
  lessons/05_program nn/golden nn/golden_llama nn/models train/memory_need memory/allocator_published parallel/comm/mpi lessons/22_program lessons/22_same) \
  $(wildcard tests/course/*_test.cpp)
MPI := 0
export LEAVE_OUT := */emu_reverse:*/emu_shuffled:*.EveryCureCures:*.TokensComeAsOftenAsTheModelSays:*.AHeaderOfManyValues*:*.LongHeaders*:*.AMillionEvents*:L13_Programs.*
LEAVE_OUT := $(LEAVE_OUT):L03_Devices.EveryDeviceNeedsTheSameBytes*:L03_ReportTime.OfMetaIsThatOfOtherMachines:L01_Machine.*Peak*
# And what takes longest though shorter tests run the same kernels and ops: on emu an op in the types of 16 bits, optimizers
# and a search beside golden values, steps of Muon and 8-bit AdamW, gradient norms in the settings of lessons 9 and 18; tables
# of bytes and network times; a model that learns; two models with dropout; caches of grouped heads beside whole passes on emu; models whose chains are compiled; attention of 8,191 tokens, or at many lengths.
LEAVE_OUT := $(LEAVE_OUT):$(subst $() ,:,$(patsubst %,*L12_LinearQuantized.%*/emu_??16,Outputs Gradients Flops Numbers))
LEAVE_OUT := $(LEAVE_OUT):*L06_Golden.*/emu:*L04_Generate.Beam*/emu:*L06_MuonOptimizer.AStep*/emu:*L11_AdamW8bit.AWeightWhose*/emu
LEAVE_OUT := $(LEAVE_OUT):*L09_GradNorm.*/emu:*L18_GradNorm.*InTwoSums/emu:L18_ZeroBytes.AreKept*:L18_WhatIf.*:L17_Scaling.*EachNetwork*:L17_Scaling.A*PublishedRun*
LEAVE_OUT := $(LEAVE_OUT):L04_Precision.*Bytes*:L04_Precision.MixedLearns*:L18_Tables.*StatesAre*:L03_TwoModels.WithDropout*
LEAVE_OUT := $(LEAVE_OUT):*L15_FlashLengths.*:L15_FlashGradients.*:*L16_ChainsOfAModel.*:L16_Chains.OfTwoModels*:*L21_KvCache.LogitsOf*/emu:L20_Layout.AllOfEightRanks:L20_LayoutModels.*:L20_PlanSeconds.*
