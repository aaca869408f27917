#!/usr/bin/env bash
# PyOpenCL 2026.1.4: a program that cannot be cached is not built at all, and the error names an environment variable.
#
# Expected: where the folder of the compiler cache cannot be made, Program.build() warns ("PyOpenCL compiler caching
#   failed with an exception") and builds without the cache; PYOPENCL_CACHE_FAILURE_FATAL=1 makes that an error.
# Seen: without the variable, KeyError: 'PYOPENCL_CACHE_FAILURE_FATAL', which hides the cause; with the variable set to
#   the empty string, the warning and a program that runs. So whoever turns warnings into errors meets the KeyError too:
#   the CompilerWarning that Intel's runtime gives for every program is raised inside the cache, and counts as its failure.
# Source: pyopencl/cache.py, create_built_program_from_source_cached, reads os.environ[...] instead of os.environ.get.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check pyopencl==2026.1.4 numpy==2.4.6 \
    intel-opencl-rt==2026.2.0 intel-cmplr-lib-rt==2026.2.0
mkdir "$folder/vendors"
ls "$folder"/venv/lib/libintelocl.so >"$folder/vendors/intel.icd"
export OCL_ICD_VENDORS=$folder/vendors LD_LIBRARY_PATH=$folder/venv/lib
touch "$folder/file"
cat >"$folder/build.py" <<'PY'
import warnings

import pyopencl as cl

context = cl.Context([cl.get_platforms()[0].get_devices()[0]])
source = "kernel void one(global int *x) { x[get_global_id(0)] = 1; }"
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    try:
        cl.Program(context, source).build()
        said = "built"
    except KeyError as error:
        said = f"KeyError: {error}"
    print(said, any("compiler caching failed" in str(each.message) for each in caught))
PY
run() { env "$@" "$folder/venv/bin/python" "$folder/build.py"; }
check() { [ "$1" = "$2" ] || { echo "changed: $1 instead of $2" >&2; exit 1; }; }
check "$(run XDG_CACHE_HOME="$folder/cache")" "built False"
check "$(run XDG_CACHE_HOME="$folder/file")" "KeyError: 'PYOPENCL_CACHE_FAILURE_FATAL' False"
check "$(run XDG_CACHE_HOME="$folder/file" PYOPENCL_CACHE_FAILURE_FATAL=)" "built True"
echo "as described"
