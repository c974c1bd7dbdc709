// SPDX-License-Identifier: Apache-2.0
// Structures that programs pass to libcuda, with the layout of CUDA 12's cuda.h.
#pragma once
#include <stddef.h>
#include <stdint.h>

struct pool_properties { // CUmemPoolProps
	int type, handle_types, location_type, location;
	void *security;
	uint64_t max_size;
	unsigned char spare[56];
};
_Static_assert(sizeof(struct pool_properties) == 88 && offsetof(struct pool_properties, location) == 12 &&
	       offsetof(struct pool_properties, max_size) == 24, "CUmemPoolProps");

struct properties { // CUmemAllocationProp
	int type, handle_types, location_type, location;
	void *windows;
	unsigned char flags[8];
};
_Static_assert(sizeof(struct properties) == 32 && offsetof(struct properties, location) == 12 &&
	       offsetof(struct properties, flags) == 24, "CUmemAllocationProp");

struct access { // CUmemAccessDesc
	int location_type, location, flags;
};
_Static_assert(sizeof(struct access) == 12, "CUmemAccessDesc");

struct multicast_properties { // CUmulticastObjectProp
	unsigned devices;
	size_t size;
	unsigned char rest[16];
};
_Static_assert(sizeof(struct multicast_properties) == 32 && offsetof(struct multicast_properties, size) == 8, "CUmulticastObjectProp");

struct array2d { // CUDA_ARRAY_DESCRIPTOR
	size_t width, height;
	unsigned format, channels;
};
struct array3d { // CUDA_ARRAY3D_DESCRIPTOR
	size_t width, height, depth;
	unsigned format, channels, flags;
};
_Static_assert(sizeof(struct array2d) == 24 && offsetof(struct array2d, format) == 16, "CUDA_ARRAY_DESCRIPTOR");
_Static_assert(sizeof(struct array3d) == 40 && offsetof(struct array3d, format) == 24 && offsetof(struct array3d, flags) == 32,
	       "CUDA_ARRAY3D_DESCRIPTOR");
struct array2d_v1 { // with 32-bit sizes
	unsigned width, height, format, channels;
};
struct array3d_v1 {
	unsigned width, height, depth, format, channels, flags;
};

struct handle { // CUipcMemHandle: passed by value, in memory
	uint64_t magic, pid, start, address, size;
	int slot, gpu;
	unsigned char spare[16];
};
_Static_assert(sizeof(struct handle) == 64, "CUipcMemHandle, CUmemPoolPtrExportData");

struct external { // CUDA_EXTERNAL_MEMORY_HANDLE_DESC
	int type;
	unsigned char handle[16];
	uint64_t size __attribute__((aligned(8)));
	unsigned char rest[72];
};
_Static_assert(sizeof(struct external) == 104 && offsetof(struct external, size) == 24, "CUDA_EXTERNAL_MEMORY_HANDLE_DESC");
struct buffer { // CUDA_EXTERNAL_MEMORY_BUFFER_DESC
	uint64_t offset, size;
	unsigned char rest[72];
};
_Static_assert(sizeof(struct buffer) == 88 && offsetof(struct buffer, size) == 8, "CUDA_EXTERNAL_MEMORY_BUFFER_DESC");

struct mapped_mipmap { // CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC
	uint64_t offset;
	struct array3d array;
	unsigned levels, rest[16];
};
_Static_assert(sizeof(struct mapped_mipmap) == 120 && offsetof(struct mapped_mipmap, levels) == 48, "CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC");

struct node_parameters { // CUDA_MEM_ALLOC_NODE_PARAMS
	int pool[22]; // CUmemPoolProps: location type in [2], location in [3]
	void *access;
	size_t accesses;
	size_t size;
	uint64_t address;
};
_Static_assert(sizeof(struct node_parameters) == 120 && offsetof(struct node_parameters, size) == 104 &&
	       offsetof(struct node_parameters, address) == 112, "CUDA_MEM_ALLOC_NODE_PARAMS");

enum { NODE_ALLOCATES = 10, NODE_FREES = 11 };
struct any_node { // CUgraphNodeParams
	int type, spare[3];
	union {
		struct node_parameters memory;
		uint64_t address;
		unsigned char bytes[232];
	};
	long long spare2;
};
_Static_assert(sizeof(struct any_node) == 256 && offsetof(struct any_node, memory) == 16, "CUgraphNodeParams");

enum { ON_DEVICE = 1, ON_HOST = 2, ON_HOST_NUMA = 3 }; // CUmemLocationType
enum { PINNED_TYPE = 1, MANAGED_TYPE = 2 };            // CUmemAllocationType
struct location { // CUmemLocation
	int type, id;
};
