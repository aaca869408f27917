"""Mechanistic models: published theories of how hardware executes kernels, without weights.

Each model takes a `KernelProfile` (work per sub-group), a `LaunchConfiguration` and the
`DeviceParameters`. Letters of the papers appear only beside their formulas; the code uses the names
below.

======================  ================================  ===================================
symbol                  name                              unit
======================  ================================  ===================================
small lambda of c       ``cpi``                           cycle/instruction, one compute unit
capital lambda of c     ``latency``                       cycle, issue to result
alpha of c              ``alpha[c]``                      instruction/sub-group
CI                      ``compute_intensity``             alpha_comp / alpha_mem
omega                   ``occupancy``                     sub-group/compute unit (no ratio)
capital omega           ``total_sub_groups``              sub-group
capital lambda of app   ``latency_app``                   cycle, one sub-group alone
IL                      ``issue_limit``                   instruction/cycle
WPC                     ``wpc``                           sub-group/cycle/compute unit
CPR                     ``cpr``                           cycle for ``occupancy`` sub-groups
======================  ================================  ===================================
"""
