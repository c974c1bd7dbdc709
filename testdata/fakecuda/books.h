// SPDX-License-Identifier: Apache-2.0
// The simulated machine: one file, mapped by all processes, records what every process holds on
// every GPU. internal/fakecuda reads it from Go: keep the offsets.
#pragma once
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define BOOKS_MAGIC 0x32306164756b6166ull // "fakuda02"
#define MAX_GPUS 16
#define MAX_PROCESSES 512
#define KEEP_ENDED 64 // up to here, slots of exited processes are kept so that tests can read them
#define GPU_PAGE (2ull << 20)

struct gpu_books {
	_Atomic uint64_t context;  // bytes of the context itself
	_Atomic uint64_t reserved; // bytes of 2 MiB pages in use
	_Atomic uint64_t device_bytes, device_count;   // live, as requested
	_Atomic uint64_t managed_bytes, managed_count; // since start, device and managed
	_Atomic uint64_t total_bytes, total_count;     // ever allocated, device and managed
	_Atomic uint64_t async_bytes, async_count;     // live from pools, as requested
	_Atomic uint64_t pool_reserved;                // what pools hold; part of reserved
	_Atomic uint64_t graph_reserved;               // what launched graphs hold; part of reserved
	_Atomic uint64_t vmm_bytes, vmm_count;         // physical memory of cuMemCreate that is referenced or mapped
	_Atomic uint64_t array_bytes, array_count;     // by the descriptor, mipmaps too
	_Atomic uint64_t imported_bytes, imported_count; // memory of other processes: never in reserved
	_Atomic uint64_t graph_bytes, graph_count;     // alloc nodes not freed by anything
	uint64_t spare[4];
};

// A slot belongs to the holder of the file lock on its first byte. The kernel releases that lock on
// exit, exec and SIGKILL, and translates the holder's pid into the reader's PID namespace.
struct process_books {
	_Atomic uint64_t pid; // as the process itself sees it
	_Atomic uint64_t start; // clock ticks since boot
	_Atomic uint64_t pinned_bytes, pinned_count;
	_Atomic uint64_t pinned_total_bytes, pinned_total_count;
	_Atomic uint64_t registered_bytes, registered_count;
	_Atomic uint64_t vmm_host_bytes, vmm_host_count; // cuMemCreate on the host
	uint64_t spare[6];
	struct gpu_books gpu[MAX_GPUS];
};

struct books {
	_Atomic uint64_t magic; // written last
	_Atomic uint64_t gpus;
	_Atomic uint64_t capacity; // bytes per GPU
	_Atomic uint64_t high;     // slots ever used
	_Atomic uint64_t mig;      // two instances per GPU; everything else here counts instances
	uint64_t spare[3];
	struct process_books process[MAX_PROCESSES];
};
_Static_assert(sizeof(struct gpu_books) == 192, "mirrored in Go");
_Static_assert(sizeof(struct process_books) == 128 + 192 * MAX_GPUS, "mirrored in Go");
_Static_assert(offsetof(struct books, process) == 64, "mirrored in Go");

// books_open maps the file. If the file is new or unused, it is created as the environment says.
// Returns NULL on error. The descriptor is never closed: closing any descriptor of the file
// releases the process's lock.
struct books *books_open(int *fd);
// books_claim takes a slot for this process. NULL: none is free.
struct process_books *books_claim(struct books *b, int fd);
// books_sweep frees what exited processes held.
void books_sweep(struct books *b, int fd, const struct process_books *self);
// books_used returns what all processes hold on a GPU, including exited ones not yet swept.
uint64_t books_used(struct books *b, int gpu);
// books_owner returns the pid of the running process that holds the slot, or 0.
pid_t books_owner(struct books *b, int fd, int slot);

uint64_t environment_bytes(const char *name, uint64_t otherwise);
void gpu_uuid(int gpu, unsigned char uuid[16]);
void gpu_uuid_text(int gpu, char text[41]); // "GPU-…"
int gpu_minor(int gpu, int gpus); // of its device node
// With MIG, each of NVML's GPUs is two GPUs in the books.
#define MIG_INSTANCES 2
void mig_uuid(int instance, unsigned char uuid[16]);
void mig_uuid_text(int instance, char text[41]); // "MIG-…"
