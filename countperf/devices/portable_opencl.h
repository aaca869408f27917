#define KERNEL kernel void
#define GLOBAL global
#define RESTRICT restrict
#define LOCAL_ARRAY(type, name, size) local type name[size]
#define LOCAL_BARRIER barrier(CLK_LOCAL_MEM_FENCE)
#define GROUP_ID ((int) get_group_id(0))
#define LOCAL_ID ((int) get_local_id(0))
#define LOCAL_SIZE ((int) get_local_size(0))
#define GLOBAL_ID ((int) get_global_id(0))
#define I64 long
#define CYCLES 0
#define F4 float4
