// SPDX-License-Identifier: Apache-2.0
// The runtime's functions for devices, addresses and kernels.
#include "../fakecuda/runtime.h"
#include <stdio.h>
#include <string.h>

#define VERSION 12040
#define CALL(function, ...) \
	int result = cudart_ready(); \
	return cudart_record(result == SUCCESS ? cudart_driver.function(__VA_ARGS__) : result)

API int cudaDeviceGetAttribute(int *value, int attribute, int device) { CALL(cuDeviceGetAttribute, value, attribute, device); }

API int cudaDriverGetVersion(int *version)
{
	*version = VERSION;
	return SUCCESS;
}

API int cudaRuntimeGetVersion(int *version) { return cudaDriverGetVersion(version); }

// cudaDeviceProp of CUDA 12, 1032 bytes, with the known fields.
struct properties12 {
	char name[256];
	unsigned char uuid[16], spare1[16];
	size_t memory, block_memory;
	int block_registers, warp;
	size_t pitch;
	int block_threads, block_size[3], grid_size[3], clock;
	size_t constant;
	int major, minor;
	size_t alignment[2];
	int overlap, processors;
	unsigned char spare2[184];
	int concurrent, ecc, bus, slot, domain, tcc, engines, unified, memory_clock, memory_width, l2, persisting, processor_threads;
	unsigned char spare3[12];
	size_t processor_memory;
	int processor_registers, managed;
	unsigned char spare4[40];
	size_t opt_in;
	int spare5[2], processor_blocks, spare6;
	size_t reserved;
	unsigned char spare7[304];
};
_Static_assert(offsetof(struct properties12, memory) == 288 && offsetof(struct properties12, major) == 360 &&
	       offsetof(struct properties12, processors) == 388 && offsetof(struct properties12, concurrent) == 576 &&
	       offsetof(struct properties12, bus) == 584 && offsetof(struct properties12, l2) == 616 &&
	       offsetof(struct properties12, processor_memory) == 640 && offsetof(struct properties12, opt_in) == 696 &&
	       offsetof(struct properties12, processor_blocks) == 712 && sizeof(struct properties12) == 1032, "cudaDeviceProp");

static const struct {
	int attribute;
	size_t offset;
} numbers[] = {
	{1, offsetof(struct properties12, block_threads)},
	{2, offsetof(struct properties12, block_size[0])},
	{3, offsetof(struct properties12, block_size[1])},
	{4, offsetof(struct properties12, block_size[2])},
	{5, offsetof(struct properties12, grid_size[0])},
	{6, offsetof(struct properties12, grid_size[1])},
	{7, offsetof(struct properties12, grid_size[2])},
	{8, offsetof(struct properties12, block_memory)}, // the low half
	{10, offsetof(struct properties12, warp)},
	{12, offsetof(struct properties12, block_registers)},
	{13, offsetof(struct properties12, clock)},
	{16, offsetof(struct properties12, processors)},
	{31, offsetof(struct properties12, concurrent)},
	{33, offsetof(struct properties12, bus)},
	{36, offsetof(struct properties12, memory_clock)},
	{37, offsetof(struct properties12, memory_width)},
	{38, offsetof(struct properties12, l2)},
	{39, offsetof(struct properties12, processor_threads)},
	{40, offsetof(struct properties12, engines)},
	{41, offsetof(struct properties12, unified)},
	{75, offsetof(struct properties12, major)},
	{76, offsetof(struct properties12, minor)},
	{81, offsetof(struct properties12, processor_memory)},
	{82, offsetof(struct properties12, processor_registers)},
	{83, offsetof(struct properties12, managed)},
	{97, offsetof(struct properties12, opt_in)},
	{106, offsetof(struct properties12, processor_blocks)},
	{111, offsetof(struct properties12, reserved)},
};

API int cudaGetDeviceProperties_v2(struct properties12 *p, int device)
{
	memset(p, 0, sizeof *p);
	strcpy(p->name, "Fake GPU");
	p->constant = 65536;
	p->alignment[0] = 512;
	p->alignment[1] = 32;
	int result = cudart_ready();
	if (result == SUCCESS)
		result = cudart_driver.cuDeviceTotalMem_v2(&p->memory, device);
	if (result == SUCCESS)
		result = cudart_driver.cuDeviceGetUuid(p->uuid, device);
	for (size_t i = 0; result == SUCCESS && i < sizeof numbers / sizeof *numbers; i++)
		result = cudart_driver.cuDeviceGetAttribute((int *)((char *)p + numbers[i].offset), numbers[i].attribute, device);
	return cudart_record(result);
}

API int cudaDeviceGetPCIBusId(char *text, int length, int device)
{
	int bus = 0, result = cudaDeviceGetAttribute(&bus, 33, device);
	if (result == SUCCESS)
		snprintf(text, (size_t)length, "0000:%02X:00.0", bus);
	return result;
}

API int cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
	*least = 0;
	*greatest = -5;
	return SUCCESS;
}

API int cudaDeviceCanAccessPeer(int *can, int device, int peer)
{
	*can = device != peer;
	return SUCCESS;
}

API int cudaDeviceEnablePeerAccess(int peer __attribute__((unused)), unsigned flags __attribute__((unused))) { return SUCCESS; }

API int cudaPeekAtLastError(void)
{
	extern int cudaGetLastError(void);
	return cudart_record(cudaGetLastError());
}

API const char *cudaGetErrorName(int code)
{
	return code == SUCCESS ? "cudaSuccess" : code == 2 ? "cudaErrorMemoryAllocation" : "cudaErrorUnknown";
}

struct pointer { // cudaPointerAttributes
	int type, device;
	const void *on_device, *on_host;
};

API int cudaPointerGetAttributes(struct pointer *p, const void *address)
{
	enum { TYPE = 2, DEVICE = 9, UNREGISTERED = 0, HOST = 1 };
	int result = cudart_ready();
	*p = (struct pointer){UNREGISTERED, -2, NULL, address};
	if (result != SUCCESS || cudart_driver.cuPointerGetAttribute(&p->type, TYPE, (uint64_t)address) != SUCCESS)
		return cudart_record(result);
	p->on_device = address;
	p->on_host = p->type == HOST ? address : NULL;
	return cudart_record(cudart_driver.cuPointerGetAttribute(&p->device, DEVICE, (uint64_t)address));
}

API int cudaHostGetDevicePointer(void **device, void *host, unsigned flags __attribute__((unused)))
{
	*device = host;
	return SUCCESS;
}

struct function { // cudaFuncAttributes, without what CUDA 11.8 added
	size_t shared, constant, local;
	int threads, registers, ptx, binary, cache, dynamic, carveout;
};

API int cudaFuncGetAttributes(struct function *f, const void *kernel __attribute__((unused)))
{
	*f = (struct function){.threads = 1024, .registers = 32, .ptx = 80, .binary = 80, .dynamic = 49152};
	return SUCCESS;
}

API int cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, const void *kernel __attribute__((unused)), int size __attribute__((unused)),
							       size_t shared __attribute__((unused)), unsigned flags __attribute__((unused)))
{
	*blocks = 2;
	return SUCCESS;
}

API int cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *kernel, int size, size_t shared)
{
	return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, kernel, size, shared, 0);
}
