"""What compilers made of a kernel: instructions by class, loop by loop.

Two sources, both optional: machine code that PoCL compiled for a work group (x86, read with
``objdump``), and PTX that nvcc made for a work item. Nothing else of countperf needs them.

No model uses them, since leaving families out shows no gain. Of the 1023 cases of measurement
kernels on PoCL (EPYC, Zen 5), a policy of vectors of 16 where work items have no loops of their own
predicts left-out families within 23.9 %. Arithmetic shared between vector and scalar instructions
as in the code, instead of as the policy has it, gives 23.5 to 25.2 %; weights of their own for
scalar arithmetic that the compiler put into vectors, 23.8 to 24.0 %; all of the policy's
instructions shared as in the code, 28.1 to 32.0 %; and floating-point instructions of the code, times the
trips of their loops, instead of arithmetic 23.2 %, 0.81 to 1.16 times the error (95 %, resampling
families). Where the policy takes scalar code for vectors (40 cases), the latter does help: 40 %
instead of 52 %. The policy is seldom wrong where it matters, and static code does not say how often
a loop runs.
"""
