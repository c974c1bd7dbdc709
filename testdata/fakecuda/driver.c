// SPDX-License-Identifier: Apache-2.0
// Initialization, shutdown, devices and contexts of the fake libcuda.so.1.
#define _GNU_SOURCE
#include "blocks.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#define MAX_CONTEXTS 1280
#define MAX_GREENS 64
#define STACK_MAX 16
#define DEINITIALIZED_STATE 0x321cba00

_Atomic uint32_t fakecuda_state; // the stubs compare it
_Atomic bool initialised;
struct process_books *self;
uint64_t allocation_latency;

struct books *books;
static int books_fd;
static uint64_t context_bytes;
static bool forked;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
struct context contexts[MAX_CONTEXTS];
static struct context greens[MAX_GREENS]; // aliases of primary contexts
static _Atomic int context_high = MAX_GPUS;

#define THREAD_LOCAL static __thread __attribute__((tls_model("initial-exec")))
THREAD_LOCAL struct context *current;
THREAD_LOCAL struct context *pushed[STACK_MAX];
THREAD_LOCAL int depth;

uint64_t gpu_capacity(void) { return books->capacity; }

uint64_t gpu_used(int gpu) { return books_used(books, gpu); }

int own_slot(void) { return (int)(self - books->process); }

bool slot_alive(int slot, uint64_t pid, uint64_t start)
{
	if (slot < 0 || slot >= MAX_PROCESSES)
		return false;
	struct process_books *p = &books->process[slot];
	return p->pid == pid && p->start == start && books_owner(books, books_fd, slot) != 0;
}

// charge adds bytes to an account of this process if the GPU has room. No process ever exceeds the
// capacity, and a killed process leaves nothing behind.
bool charge(int gpu, _Atomic uint64_t *account, uint64_t bytes)
{
	for (int attempt = 0; attempt < 3; attempt++) {
		if (books_used(books, gpu) + bytes <= books->capacity) {
			atomic_fetch_add(account, bytes);
			if (books_used(books, gpu) <= books->capacity)
				return true;
			atomic_fetch_sub(account, bytes);
		}
		if (attempt == 0) {
			static pthread_mutex_t sweep = PTHREAD_MUTEX_INITIALIZER;
			pthread_mutex_lock(&sweep);
			books_sweep(books, books_fd, self);
			pthread_mutex_unlock(&sweep);
		}
	}
	return false;
}

static void in_child(void)
{
	forked = true; // CUDA does not work in a forked child
	initialised = false;
	self = NULL;
}

static int start(void)
{
	if (forked)
		return NOT_INITIALIZED;
	if (!books && !(books = books_open(&books_fd)))
		return UNKNOWN;
	read_visible_gpus();
	if (!visible_gpus())
		return NO_DEVICE;
	books_sweep(books, books_fd, NULL);
	if (!(self = books_claim(books, books_fd)))
		return UNKNOWN;
	context_bytes = environment_bytes("FAKECUDA_CONTEXT", 300ull << 20) & ~(GPU_PAGE - 1);
	allocation_latency = environment_bytes("FAKECUDA_LATENCY_US", 0) * 1000;
	pthread_atfork(NULL, NULL, in_child);
	hold_nodes();
	initialised = true;
	if (environment_bytes("FAKECUDA_SHUT", 0)) // exports fail from here on; the private table still works
		fakecuda_state = DEINITIALIZED_STATE;
	return SUCCESS;
}

int impl_cuInit(unsigned flags)
{
	if (flags)
		return INVALID_VALUE;
	pthread_mutex_lock(&lock);
	int result = initialised ? SUCCESS : start();
	pthread_mutex_unlock(&lock);
	return result;
}

__attribute__((destructor)) static void end(void) { fakecuda_state = DEINITIALIZED_STATE; }

int impl_cuDriverGetVersion(int *version)
{
	*version = 12040;
	return SUCCESS;
}

int impl_cuDeviceGetCount(int *count)
{
	if (!initialised)
		return NOT_INITIALIZED;
	*count = visible_gpus();
	return SUCCESS;
}

int impl_cuDeviceGet(int *device, int ordinal)
{
	if (!initialised)
		return NOT_INITIALIZED;
	if (visible_gpu(ordinal) < 0)
		return INVALID_DEVICE;
	*device = ordinal;
	return SUCCESS;
}

int impl_cuDeviceGetName(char *name, int length, int device)
{
	if (visible_gpu(device) < 0)
		return initialised ? INVALID_DEVICE : NOT_INITIALIZED;
	snprintf(name, (size_t)length, "Fake GPU");
	return SUCCESS;
}

int impl_cuDeviceGetUuid(unsigned char uuid[16], int device)
{
	if (visible_gpu(device) < 0)
		return initialised ? INVALID_DEVICE : NOT_INITIALIZED;
	(books->mig ? mig_uuid : gpu_uuid)(visible_gpu(device), uuid);
	return SUCCESS;
}

struct context *current_context(void) { return current && current->stands_for ? current->stands_for : current; }

static bool within(const struct context *c, uint64_t address)
{
	return c->active && address - c->arena.base < c->arena.pages * GPU_PAGE;
}

struct context *context_at(uint64_t address)
{
	if (current_context() && within(current_context(), address))
		return current_context();
	for (int i = 0; i < context_high; i++)
		if (within(&contexts[i], address))
			return &contexts[i];
	return NULL;
}

static bool is_context(const struct context *c)
{
	if (c >= greens && c < greens + MAX_GREENS)
		return c->stands_for != NULL;
	return c >= contexts && c < contexts + MAX_CONTEXTS && (c->active || c->primary);
}

static bool has_other_context(int gpu)
{
	for (int i = 0; i < context_high; i++)
		if (contexts[i].active && contexts[i].gpu == gpu)
			return true;
	return false;
}

// Context memory is charged once per process and GPU. The caller holds lock.
static int activate(struct context *c, int ordinal, bool primary)
{
	int gpu = visible_gpu(ordinal);
	bool first = !has_other_context(gpu);
	if (first && !charge(gpu, &self->gpu[gpu].context, context_bytes))
		return OUT_OF_MEMORY;
	int result = arena_create(&c->arena, gpu);
	if (result != SUCCESS) {
		if (first)
			atomic_fetch_sub(&self->gpu[gpu].context, context_bytes);
		return result;
	}
	c->ordinal = ordinal;
	c->gpu = gpu;
	c->primary = primary;
	c->active = true;
	return SUCCESS;
}

static void deactivate(struct context *c)
{
	if (!c->active)
		return;
	arena_destroy(&c->arena);
	pinned_release(c);
	c->active = false;
	c->references = 0;
	bool last = !has_other_context(c->gpu);
	blocks_release(c, last);
	if (last)
		atomic_fetch_sub(&self->gpu[c->gpu].context, context_bytes);
}

int impl_cuDevicePrimaryCtxRetain(struct context **out, int device)
{
	if (!initialised)
		return NOT_INITIALIZED;
	if (visible_gpu(device) < 0)
		return INVALID_DEVICE;
	struct context *c = &contexts[device];
	pthread_mutex_lock(&lock);
	int result = c->active ? SUCCESS : activate(c, device, true);
	if (result == SUCCESS) {
		c->references++;
		*out = c;
	}
	pthread_mutex_unlock(&lock);
	return result;
}

static int drop_primary(int device, bool reset)
{
	if (!initialised)
		return NOT_INITIALIZED;
	if (visible_gpu(device) < 0)
		return INVALID_DEVICE;
	struct context *c = &contexts[device];
	pthread_mutex_lock(&lock);
	int result = c->active || reset ? SUCCESS : INVALID_CONTEXT;
	if (c->active && (reset || --c->references == 0))
		deactivate(c);
	pthread_mutex_unlock(&lock);
	return result;
}

int context_of_green(struct context **out, int device)
{
	struct context *c;
	int result = impl_cuDevicePrimaryCtxRetain(&c, device);
	pthread_mutex_lock(&lock);
	for (int i = 0; i < MAX_GREENS && result == SUCCESS; i++)
		if (!greens[i].stands_for) {
			greens[i].stands_for = c;
			greens[i].ordinal = device;
			*out = &greens[i];
			pthread_mutex_unlock(&lock);
			return SUCCESS;
		}
	pthread_mutex_unlock(&lock);
	return result == SUCCESS ? OUT_OF_MEMORY : result;
}

void green_release(struct context *c)
{
	c->stands_for = NULL;
	if (current == c)
		current = NULL;
	drop_primary(c->ordinal, false);
}

int impl_cuDevicePrimaryCtxRelease_v2(int device) { return drop_primary(device, false); }

int impl_cuDevicePrimaryCtxRelease(int device) { return drop_primary(device, false); }

int impl_cuDevicePrimaryCtxReset_v2(int device) { return drop_primary(device, true); }

int impl_cuDevicePrimaryCtxReset(int device) { return drop_primary(device, true); }

static int push(struct context *c)
{
	if (!is_context(c) || depth == STACK_MAX)
		return INVALID_CONTEXT;
	pushed[depth++] = current;
	current = c;
	return SUCCESS;
}

int impl_cuCtxPushCurrent_v2(struct context *c) { return push(c); }

int impl_cuCtxPushCurrent(struct context *c) { return push(c); }

static int pop(struct context **c)
{
	if (!current)
		return INVALID_CONTEXT;
	if (c)
		*c = current;
	current = depth ? pushed[--depth] : NULL;
	return SUCCESS;
}

int impl_cuCtxPopCurrent_v2(struct context **c) { return pop(c); }

int impl_cuCtxPopCurrent(struct context **c) { return pop(c); }

static int create(struct context **out, int device)
{
	if (!initialised)
		return NOT_INITIALIZED;
	if (visible_gpu(device) < 0)
		return INVALID_DEVICE;
	int result = OUT_OF_MEMORY;
	pthread_mutex_lock(&lock);
	for (int i = MAX_GPUS; i < MAX_CONTEXTS; i++) {
		if (contexts[i].active)
			continue;
		result = activate(&contexts[i], device, false);
		if (result == SUCCESS)
			*out = &contexts[i];
		if (context_high <= i)
			context_high = i + 1;
		break;
	}
	pthread_mutex_unlock(&lock);
	return result == SUCCESS ? push(*out) : result;
}

int impl_cuCtxCreate_v2(struct context **out, unsigned flags UNUSED, int device) { return create(out, device); }

int impl_cuCtxCreate_v3(struct context **out, void *affinity UNUSED, int count UNUSED, unsigned flags UNUSED, int device)
{
	return create(out, device);
}

int impl_cuCtxCreate_v4(struct context **out, void *parameters UNUSED, unsigned flags UNUSED, int device)
{
	return create(out, device);
}

int impl_cuCtxCreate(struct context **out, unsigned flags UNUSED, int device) { return create(out, device); }

static int destroy(struct context *c)
{
	if (!is_context(c) || c->primary || c->stands_for)
		return INVALID_CONTEXT;
	pthread_mutex_lock(&lock);
	deactivate(c);
	pthread_mutex_unlock(&lock);
	if (current == c)
		current = depth ? pushed[--depth] : NULL;
	return SUCCESS;
}

int impl_cuCtxDestroy_v2(struct context *c) { return destroy(c); }

int impl_cuCtxDestroy(struct context *c) { return destroy(c); }

int impl_cuCtxSetCurrent(struct context *c)
{
	if (!initialised)
		return NOT_INITIALIZED;
	if (c && !is_context(c))
		return INVALID_CONTEXT;
	current = c;
	return SUCCESS;
}

int impl_cuCtxGetCurrent(struct context **c)
{
	*c = current;
	return initialised ? SUCCESS : NOT_INITIALIZED;
}

int impl_cuCtxGetDevice(int *device)
{
	if (!current)
		return initialised ? INVALID_CONTEXT : NOT_INITIALIZED;
	*device = current->ordinal;
	return SUCCESS;
}
