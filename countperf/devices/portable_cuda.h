#define KERNEL extern "C" __global__ void
#define GLOBAL
#define RESTRICT __restrict__
#define LOCAL_ARRAY(type, name, size) __shared__ type name[size]
#define LOCAL_BARRIER __syncthreads()
#define GROUP_ID ((int) blockIdx.x)
#define LOCAL_ID ((int) threadIdx.x)
#define LOCAL_SIZE ((int) blockDim.x)
#define GLOBAL_ID ((int) (blockIdx.x * blockDim.x + threadIdx.x))
#define I64 long long
#define CYCLES clock64()
#define F4 float4
