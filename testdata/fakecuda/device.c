// SPDX-License-Identifier: Apache-2.0
// What the fake libcuda.so.1 reports about devices and addresses.
#include "blocks.h"
#include <stdio.h>
#include <string.h>

// An A100, as far as programs depend on it.
static const struct {
	int attribute, value;
} attributes[] = { // CUdevice_attribute
	{1, 1024}, {2, 1024}, {3, 1024}, {4, 64}, // threads per block
	{5, 2147483647}, {6, 65535}, {7, 65535},  // blocks per grid
	{8, 49152}, {81, 167936}, {97, 166912}, {111, 1024}, // shared memory
	{10, 32}, {12, 65536}, {82, 65536},       // warp, registers
	{13, 1410000}, {36, 1215000}, {37, 5120}, {38, 41943040}, // clocks in kHz, bus, L2
	{16, 108}, {39, 2048}, {106, 32},         // processors, their threads and blocks
	{31, 1}, {40, 3}, {41, 1}, {78, 1}, {83, 1}, {89, 1}, {95, 1}, // supported features
	{75, 8}, {76, 0},                         // compute capability
	{102, 1}, {103, 1}, {115, 1},             // virtual memory, descriptors as handles, pools
};
enum { PCI_BUS = 33 };

static int pci_bus(int device) { return visible_gpu(device) / (books->mig ? MIG_INSTANCES : 1) + 1; } // as in NVML

static int known(int device)
{
	if (!initialised)
		return NOT_INITIALIZED;
	return visible_gpu(device) < 0 ? INVALID_DEVICE : SUCCESS;
}

int impl_cuDeviceGetAttribute(int *value, int attribute, int device)
{
	int result = known(device);
	if (result != SUCCESS)
		return result;
	if (!value)
		return INVALID_VALUE;
	*value = attribute == PCI_BUS ? pci_bus(device) : 0;
	for (size_t i = 0; i < sizeof attributes / sizeof *attributes; i++)
		if (attributes[i].attribute == attribute)
			*value = attributes[i].value;
	return SUCCESS;
}

int impl_cuDeviceTotalMem_v2(size_t *bytes, int device)
{
	int result = known(device);
	if (result == SUCCESS)
		*bytes = gpu_capacity();
	return result;
}

int impl_cuDeviceGetPCIBusId(char *text, int length, int device)
{
	int result = known(device);
	if (result == SUCCESS)
		snprintf(text, (size_t)length, "0000:%02X:00.0", pci_bus(device));
	return result;
}

int impl_cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active)
{
	int result = known(device);
	if (result != SUCCESS)
		return result;
	*flags = 0;
	*active = contexts[device].active;
	return SUCCESS;
}

static int ordinal(int gpu)
{
	for (int i = 0; i < visible_gpus(); i++)
		if (visible_gpu(i) == gpu)
			return i;
	return -1;
}

struct search {
	uint64_t address;
	int gpu;
	bool host;
};

static void look(struct block *b, void *argument)
{
	struct search *s = argument;
	if (b->key > s->address || s->address - b->key >= b->size)
		return;
	if (b->kind == REGISTERED)
		s->host = true;
	else if (b->kind & (LOW | ASYNC | OPENED | POINTER | BUFFER | GRAPH_MEMORY))
		s->gpu = b->gpu;
}

// Managed memory counts as device memory.
int impl_cuPointerGetAttribute(void *out, int attribute, uint64_t address)
{
	enum { MEMORY_TYPE = 2, DEVICE_ORDINAL = 9, HOST = 1, DEVICE = 2 };
	if (!initialised)
		return NOT_INITIALIZED;
	if (!out || (attribute != MEMORY_TYPE && attribute != DEVICE_ORDINAL))
		return INVALID_VALUE;
	struct context *c = context_at(address);
	struct search s = {address, c ? c->gpu : vmm_gpu(address), !c && pinned_at(address)};
	if (s.gpu < 0 && !s.host) {
		pthread_mutex_lock(&blocks_lock);
		blocks_each(look, &s);
		pthread_mutex_unlock(&blocks_lock);
	}
	if (s.gpu < 0 && !s.host)
		return INVALID_VALUE;
	if (attribute == MEMORY_TYPE)
		*(unsigned *)out = s.host ? HOST : DEVICE;
	else
		*(int *)out = s.host ? 0 : ordinal(s.gpu);
	return SUCCESS;
}
