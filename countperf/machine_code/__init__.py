"""Executed instructions of machine code, found by following it with concrete sizes.

SASS, of a warp, is read by `sass_instruction` and followed by `warp`. Of x86-64, an object file is
disassembled (`objdump`, `object_file`), and its lines are followed for one work group
(`interpreter`): integer registers and memory (`integer_unit`), vector registers (`vector_unit`),
and loops, of which a few iterations stand for the others (`loop_extrapolation`).
`classify_x86` names what the group executes by class, `throughput` asks LLVM's machine code
analyzer for its cycles.

This package reads object code and knows no device: `countperf.devices.compile` makes the code.
"""
