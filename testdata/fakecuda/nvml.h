// SPDX-License-Identifier: Apache-2.0
// Shared by the parts of the fake libnvidia-ml.so.1.
#pragma once
#include "books.h"
#include <stdbool.h>

#define API __attribute__((visibility("default")))
enum { SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NO_PERMISSION = 4, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7,
       DRIVER_NOT_LOADED = 9, GPU_IS_LOST = 15, LIB_RM_VERSION_MISMATCH = 18, UNKNOWN = 999 };

#define MEMORY_INFO_V2 (40 | 2 << 24)
#define ADDRESSING_MODE_V1 (8 | 1 << 24)
#define NO_INSTANCE 0xffffffffu

typedef struct handle *nvmlDevice;
// A handle is one GPU of the books or, with MIG, all instances of a GPU.
struct handle {
	int index, first, count;
};
extern struct books *nvml_books;
extern int nvml_fd; // of the books

struct process_info {
	uint32_t pid;
	uint64_t bytes;
	uint32_t gpu_instance, compute_instance;
};
struct process_info_v1 {
	uint32_t pid;
	uint64_t bytes;
};
struct memory_info {
	uint64_t total, free, used;
};
struct memory_info_v2 {
	uint32_t version;
	uint64_t total, reserved, free, used;
};
struct addressing_mode {
	uint32_t version, value;
};
struct pci_info {
	char legacy[16];
	uint32_t domain, bus, device, device_id, subsystem_id;
	char bus_id[32];
};

bool nvml_fault(const char *word);
int nvml_check(nvmlDevice d);
uint32_t nvml_instance_id(int of_books);
