"""Executed instructions of x86-64 object code, found by following it with concrete sizes.

An object file is disassembled (`objdump`, `object_file`), and its lines are followed for one work
group (`interpreter`): integer registers and memory (`integer_unit`), vector registers
(`vector_unit`), and loops, of which a few iterations stand for the others
(`loop_extrapolation`). `executed_counts` names what the group executes by class, `throughput` asks
LLVM's machine code analyzer for its cycles.

This package reads object code and knows no device: `countperf.harness.compile` makes the code.
"""
