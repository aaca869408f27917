#!/usr/bin/env bash
# LLVM 19.1.7, llvm-mca: gathers of Zen 3 and 4 cost one load, divisions of Sapphire Rapids are pipelined.
#
# Expected: a gather reads lane by lane (on Skylake with AVX-512 the table has 8 cycles for 16 lanes), and a division occupies
#   its unit for many cycles (there, 16 for 8 doubles, 24 for their roots). A newer processor's table differs by a few cycles.
# Seen: a gather of 8 or 16 floats is one micro-operation and a third of a cycle on znver3 and znver4; a Zen 3 took 8 cycles
#   and more for 8 lanes. A division of doubles takes one cycle on sapphirerapids (4 on icelake-server), of 8 doubles two
#   (16), their roots two (24). So cycles of two processors cannot be compared by llvm-mca where code gathers or divides.
# Source: LLVM's scheduling models of Zen (gathers as loads) and of Sapphire Rapids (no resource cycles of the divider).
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
apt-get download -qq llvm-19=1:19.1.7-3~deb12u1 libllvm19=1:19.1.7-3~deb12u1 2>/dev/null
for package in *.deb; do dpkg -x "$package" .; done
export LD_LIBRARY_PATH=$folder/usr/lib/x86_64-linux-gnu:$folder/usr/lib/llvm-19/lib
throughput() { # PROCESSOR INSTRUCTION: cycles of the busiest resource
    echo "$2" | usr/lib/llvm-19/bin/llvm-mca -mtriple=x86_64 -mcpu="$1" | sed -n 's/^Block RThroughput: *//p'
}
check() { # EXPECTED PROCESSOR INSTRUCTION
    local said
    said=$(throughput "$2" "$3")
    echo "$2: $3: $said"
    [ "$said" = "$1" ] || { echo "changed: $said instead of $1" >&2; exit 1; }
}
check 0.3 znver3 'vgatherdps %ymm2, (%rdi,%ymm1,4), %ymm0'
check 0.3 znver4 'vgatherdps (%rdi,%zmm1,4), %zmm0{%k1}'
check 8.0 skylake-avx512 'vgatherdps (%rdi,%zmm1,4), %zmm0{%k1}'
check 1.0 sapphirerapids 'vdivsd %xmm1, %xmm2, %xmm3'
check 4.0 icelake-server 'vdivsd %xmm1, %xmm2, %xmm3'
check 2.0 sapphirerapids 'vdivpd %zmm1, %zmm2, %zmm3'
check 16.0 icelake-server 'vdivpd %zmm1, %zmm2, %zmm3'
check 2.0 sapphirerapids 'vsqrtpd %zmm1, %zmm3'
check 24.0 icelake-server 'vsqrtpd %zmm1, %zmm3'
echo "as described"
