// SPDX-License-Identifier: Apache-2.0
// Shared by all files of the simulated kernel driver. See README.md.
//
// One mutex (sim_lock) guards everything in a process; only books.c is shared by processes.
#ifndef SIM_H
#define SIM_H

#define _GNU_SOURCE
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "nvtypes.h"
#include "nvstatus.h"

typedef uint8_t u8;
typedef uint32_t u32;
typedef uint64_t u64;

enum { MAX_GPUS = 8, MAX_FDS = 4096 };
enum { LARGE_PAGE = 2 << 20 }; // the GPU's

#define COUNT(array) (sizeof(array) / sizeof *(array))

// ---- sim.c
extern pthread_mutex_t sim_lock;
void sim_log(const char *format, ...) __attribute__((format(printf, 1, 2)));
void sim_unknown(const char *kind, u32 number, const char *name);

// ---- names.c: names from the headers, for the log
const char *class_name(u32 number);
const char *control_name(u32 number);
const char *uvm_name(u32 number);

// ---- models.c: the simulated GPUs
struct model {
	const char *key, *name, *chip;
	u32 device, subsystem;           // PCI ids
	u32 architecture, implementation; // of NV2080_CTRL_CMD_MC_GET_ARCH_INFO
	u32 sm_version, gpcs, tpcs_per_gpc, tpcs, warps_per_sm, max_gpcs, l2_bytes, copy_engines;
	u64 memory_mib;
	u32 classes[48]; // ends with 0
};
extern const struct model *model;
extern int gpu_count;
void choose_model(void);
u64 heap_bytes(void); // what processes can allocate on one GPU
u32 class_count(void);
u32 gpu_id(int gpu);
int gpu_of_id(u32 id);

// ---- objects.c: RM objects, their memory, and the GPU's address space
enum { CLASS_SYSTEM_MEMORY = 0x3e, CLASS_PRIVILEGED_MEMORY = 0x3f, CLASS_LOCAL_MEMORY = 0x40, CLASS_OS_MEMORY = 0x71 };
struct object {
	struct object *next;
	u32 client, handle, parent, class, gpu;
	u32 token;   // of a channel
	u64 size;    // bytes of memory
	u64 charged; // bytes in the book of all processes
	int memfd;   // -1: none
	bool published;
	u8 *memory;
};
extern int current_gpu; // which GPU the current call is about
struct object *find_object(u32 client, u32 handle);
struct object *add_object(u32 client, u32 parent, u32 handle, u32 class);
void discard_object(struct object *o);            // one that was just added
void free_objects(u32 client, u32 handle);        // with its children; handle == client: all of the client
void forget_all_objects(void);
u32 new_handle(void);
bool give_memory(struct object *o, u64 size);     // own memory, zeroed
bool share_memory(struct object *o, int memfd, u64 size); // memory of another object; takes the descriptor
NvU32 charge_object(struct object *o, u32 attributes);
void map_gpu(u64 address, u64 length, u64 offset, struct object *o);
void unmap_gpu(u64 address, u64 length);          // length 0: the mapping at that address
struct object *mapped_object(u64 address);        // mapped from exactly that address
u8 *gpu_pointer(u64 address, u64 *room);          // NULL: not mapped; room: bytes from there

// ---- books.c: what all processes hold
void open_book(void);
bool is_book(int fd);
bool charge(int gpu, int64_t bytes); // false: out of memory
u64 used_bytes(int gpu);
int pids_on(int gpu, u32 *pids, int limit);
u64 used_by(int gpu, int pid);
void publish(struct object *o);
void unpublish(const struct object *o); // an exported descriptor keeps the memory
bool find_published(u32 client, u32 handle, struct object *o); // by handle; opens its memory
bool find_published_file(int fd, struct object *o);            // by the exported descriptor

// ---- files.c: the device files
enum device { NOT_OURS, CONTROL_DEVICE, GPU_DEVICE, UVM_DEVICE };
struct file {
	enum device device;
	bool event;         // signaled on interrupts
	struct object *map; // what mmap of it maps
	u64 map_offset;
};
extern struct file files[MAX_FDS];
enum device device_at(const char *path);
int open_device(enum device device, int flags);
void close_device(int fd);
void forget_object(const struct object *o);
void signal_events(void);
void *map_device(void *at, size_t length, int protection, int flags, int fd);

// ---- rm.c, uvm.c: ioctls
int rm_ioctl(int fd, unsigned long request, void *argument);
int uvm_ioctl(unsigned long request, void *argument);
NvU32 allocate_class(struct object *o, void *parameters);

// ---- controls*.c: RM_CONTROL
struct control {
	u32 number;
	NvU32 (*answer)(struct object *o, void *parameters, u32 size);
};
extern const struct control root_controls[], device_controls[], engine_controls[]; // end with 0
enum { UUID_BYTES = 16 };
void gpu_uuid(int gpu, u8 *uuid);
NvU32 control(struct object *o, u32 number, void *parameters, u32 size);
NvU32 succeed(struct object *o, void *parameters, u32 size);
NvU32 answer_zero(struct object *o, void *parameters, u32 size); // for parameters that begin with a number
// ANSWER begins a function that answers a control about object o with parameters p; ROW makes it one
// of a table.
#define ANSWER(name, type) static NvU32 name(struct object *o, type *p, u32 size)
#define UNUSED (void)o, (void)p, (void)size
#define ROW(number, name) {number, (NvU32 (*)(struct object *, void *, u32))name}

// ---- info.c: figures by index
struct info { u32 index, value; };
// Lists of figures come in two shapes: behind the count, or where a pointer shows.
struct info_list { u32 count; struct info infos[]; };
struct info_pointer { u32 count; struct info *infos; };
void fill_infos(struct info *list, u32 count, u32 (*answer)(u32 index));
u32 gpu_info(u32 index);
u32 memory_info(u32 index);
u32 bus_info(u32 index);
u32 graphics_info(u32 index);

// ---- channels.c: pushbuffers; engines.c: what the engines do with them
struct channel {
	struct channel *next;
	struct object *object, *userd;
	u64 entries_at, userd_offset; // the ring of pushbuffer segments, and where its indices are
	u32 entries, get;
	u32 host[0x40];               // methods of the host, by address / 4
	u32 class[8];                 // by subchannel
	u32 methods[8][0x1000];
	u32 inline_bytes;             // of inline data, written so far
	u32 *segment, left;           // words that are not executed yet
};
void add_channel(struct object *o, void *parameters);
void forget_channel(const struct object *o);
void start_channels(void);
void after_fork_in_child(void);
bool is_channel_class(u32 class);
enum words { ONE_WORD, TWO_WORDS, FOUR_WORDS }; // four: with a timestamp
void release_semaphore(u64 address, u64 payload, enum words words);
bool run_method(struct channel *c, u32 subchannel, u32 method, u32 value, u32 *data, u32 count); // false: it has to wait
bool is_inline_data(const struct channel *c, u32 subchannel, u32 method);
void run_engine_method(struct channel *c, u32 subchannel, u32 method, u32 value, u32 *data, u32 count);
void run_compute_method(struct channel *c, u32 subchannel, u32 method, u32 value, u32 *data, u32 count);

#endif
