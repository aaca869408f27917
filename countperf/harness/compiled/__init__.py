"""What compilers made of a kernel: instructions by class, loop by loop.

Two sources, both optional: machine code that PoCL compiled for a work group (x86, read with
``objdump``), and PTX that nvcc made for a work item. Nothing else of countperf needs them.

What they show of measurement kernels (vectors of eight, of four behind barriers, loops of items
without barriers not in vectors) became options of `countperf.policies.ExecutionPolicy`. No model
uses them directly. On 1023 cases of measurement kernels on PoCL (EPYC, Zen 5), a model of a
policy (vectors of 16 where work items have no loops of their own) predicts left-out families within
23.9 %. With the code's shares of packed arithmetic and vector accesses in place of the policy's
guess it is 28 to 29 %; with that of arithmetic only, 24.2 to 26.7 %; with weights apart for scalar
arithmetic that the compiler packed, 23.6 to 23.8 %. Instructions that the code executes (``flop``,
``iop``, ``call`` of `countperf.harness.compiled.code.CompiledCode.executed`) in place of arithmetic
give 21.4 %, which is 0.75 to 1.07 times the error (95 %, resampling families), and 1.5 to 4.4
points less under six other policies; but that rests on a guess of how often loops run, and other
guesses gave 22.7 to 26.7 %.
"""
