// SPDX-License-Identifier: Apache-2.0
// Stream-ordered memory. Pools take GPU memory in chunks of 32 MiB, place allocations in them as the
// driver does, and keep unused chunks until they are trimmed or synchronized. Streams are only names:
// every operation completes at once.
#include "blocks.h"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define POOL_UNIT 512
#define CHUNK (32ull << 20)
enum { ATTRIBUTE_THRESHOLD = 4, RESERVED, RESERVED_HIGH, USED, USED_HIGH };

enum memory { OF_GPU, OF_HOST, MANAGED };

struct piece {
	struct piece *next; // by address
	uint64_t at, size;
};

struct pool {
	int gpu;
	uint64_t base, chunks; // of its addresses; 0: none yet
	unsigned char *held;   // by chunk
	struct piece *pieces;  // live allocations
	enum memory memory;
	bool standing; // a device's default pool
	bool gone;     // destroyed, with live allocations
	uint64_t used, reserved, used_high, reserved_high, threshold, max_size, allocations;
};

static struct pool own[MAX_GPUS];      // by physical GPU
static struct pool own_managed[MAX_GPUS], own_host;
static struct pool *chosen[MAX_GPUS];  // set by cuDeviceSetMemPool; NULL: the default pool

static uint64_t units(uint64_t size) { return (size + POOL_UNIT - 1) & ~(uint64_t)(POOL_UNIT - 1); }

// This and all static functions below require blocks_lock.
static bool open_pool(struct pool *p)
{
	if (p->base)
		return true;
	p->chunks = 2 * gpu_capacity() / CHUNK + 1;
	char *base = mmap(NULL, (p->chunks + 1) * CHUNK, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	p->held = calloc(p->chunks, 1);
	if (base == MAP_FAILED || !p->held)
		return false;
	p->base = ((uint64_t)base + CHUNK - 1) & ~(CHUNK - 1);
	munmap(base, p->base - (uint64_t)base);
	munmap((void *)(p->base + p->chunks * CHUNK), (uint64_t)base + CHUNK - p->base);
	return true;
}

static void close_pool(struct pool *p)
{
	if (p->base)
		munmap((void *)p->base, p->chunks * CHUNK);
	free(p->held);
	free(p);
}

// grow returns the address of a new piece, 0 if there is no memory.
static uint64_t grow(struct pool *p, uint64_t size)
{
	struct gpu_books *g = &self->gpu[p->gpu];
	if (!open_pool(p) || (p->max_size && p->used + size > p->max_size))
		return 0;
	uint64_t at = p->base, more = 0;
	struct piece **place = &p->pieces, *piece;
	for (; *place && (*place)->at - at < size; place = &(*place)->next)
		at = (*place)->at + (*place)->size;
	uint64_t first = (at - p->base) / CHUNK, last = (at + size - 1 - p->base) / CHUNK;
	if (last >= p->chunks || !(piece = malloc(sizeof *piece)))
		return 0;
	for (uint64_t i = first; i <= last; i++)
		more += p->held[i] ? 0 : CHUNK;
	if (p->memory != OF_HOST && more && !charge(p->gpu, &g->reserved, more)) {
		free(piece);
		return 0;
	}
	if (p->memory != OF_HOST) {
		atomic_fetch_add(&g->pool_reserved, more);
		p->reserved += more;
		memset(p->held + first, 1, last - first + 1);
	}
	*piece = (struct piece){*place, at, size};
	*place = piece;
	p->used += size;
	p->allocations++;
	p->used_high = p->used > p->used_high ? p->used : p->used_high;
	p->reserved_high = p->reserved > p->reserved_high ? p->reserved : p->reserved_high;
	return at;
}

static void drop_piece(struct pool *p, uint64_t at)
{
	struct piece **place = &p->pieces, *piece;
	while ((*place)->at != at)
		place = &(*place)->next;
	piece = *place;
	*place = piece->next;
	p->used -= piece->size;
	p->allocations--;
	free(piece);
}

static void shrink(struct pool *p, uint64_t keep)
{
	struct gpu_books *g = &self->gpu[p->gpu];
	enum { HELD = 1, USED };
	if (p->reserved <= keep)
		return;
	for (struct piece *piece = p->pieces; piece; piece = piece->next)
		for (uint64_t i = (piece->at - p->base) / CHUNK; i <= (piece->at + piece->size - 1 - p->base) / CHUNK; i++)
			p->held[i] = USED;
	for (uint64_t i = p->chunks; i-- > 0;) {
		if (p->held[i] == HELD && p->reserved > keep) {
			p->held[i] = 0;
			p->reserved -= CHUNK;
			atomic_fetch_sub(&g->pool_reserved, CHUNK);
			atomic_fetch_sub(&g->reserved, CHUNK);
		}
		p->held[i] = p->held[i] ? HELD : 0;
	}
}

static void book_in(struct pool *p, uint64_t size)
{
	switch (p->memory) {
	case OF_HOST: BOOK_IN(self, pinned, size); break;
	case MANAGED: BOOK_IN(&self->gpu[p->gpu], managed, size); break;
	default: BOOK_IN(&self->gpu[p->gpu], async, size);
	}
}

static void book_out(struct pool *p, uint64_t size)
{
	switch (p->memory) {
	case OF_HOST: BOOK_OUT(self, pinned, size); break;
	case MANAGED: BOOK_OUT(&self->gpu[p->gpu], managed, size); break;
	default: BOOK_OUT(&self->gpu[p->gpu], async, size);
	}
}

void pools_refund(struct block *b)
{
	struct pool *p = b->detail;
	book_out(p, b->size);
	drop_piece(p, b->key);
	if (p->gone)
		shrink(p, 0);
	if (p->gone && !p->allocations)
		close_pool(p);
}

void pools_end(struct block *b)
{
	struct pool *p = b->detail;
	if (chosen[p->gpu] == p)
		chosen[p->gpu] = NULL;
	shrink(p, 0);
	p->gone = true;
	if (!p->allocations)
		close_pool(p);
}

struct release {
	int gpu;
	bool everything;
};

static void release_pool(struct block *b, void *argument)
{
	const struct release *r = argument;
	struct pool *p = b->detail;
	if (b->kind == POOL && b->gpu == r->gpu)
		shrink(p, r->everything ? 0 : p->threshold);
}

// Pools outlive contexts; their unused memory does not.
void pools_release(int gpu, bool everything)
{
	struct release r = {gpu, everything};
	blocks_each(release_pool, &r);
	own[gpu].gpu = gpu;
	shrink(&own[gpu], everything ? 0 : own[gpu].threshold);
}

static struct pool *find_pool(const void *handle)
{
	for (int i = 0; i < MAX_GPUS; i++)
		if (handle == &own[i]) {
			own[i].gpu = i;
			own[i].standing = true;
			return &own[i];
		}
	for (int i = 0; i < MAX_GPUS; i++)
		if (handle == &own_managed[i]) {
			own_managed[i].gpu = i;
			own_managed[i].memory = MANAGED;
			own_managed[i].standing = true;
			return &own_managed[i];
		}
	if (handle == &own_host) {
		own_host.memory = OF_HOST;
		return &own_host;
	}
	struct block *b = block_find((uint64_t)handle, POOL);
	return b ? b->detail : NULL;
}

static struct pool *device_pool(int gpu) { return chosen[gpu] ? chosen[gpu] : find_pool(&own[gpu]); }

static int take(struct context *c, struct pool *p, uint64_t *address, uint64_t size)
{
	uint64_t at = size > 1ull << 45 ? 0 : grow(p, units(size));
	struct block *b = at ? block_add(ASYNC, at, p->gpu, size, c) : NULL;
	if (!b) {
		if (at)
			drop_piece(p, at);
		return OUT_OF_MEMORY;
	}
	b->detail = p;
	book_in(p, size);
	*address = at;
	return SUCCESS;
}

static int allocate(uint64_t *address, size_t size, const void *handle, bool from_pool, void *stream)
{
	struct context *c;
	int result = usable(&c);
	if (result != SUCCESS)
		return result;
	if (!address || !size || (from_pool && !handle))
		return INVALID_VALUE;
	pthread_mutex_lock(&blocks_lock);
	struct pool *p = from_pool ? find_pool(handle) : device_pool(c->gpu);
	result = p ? graph_capture_alloc(stream, p->gpu, size, address) : INVALID_VALUE;
	if (result == NOT_FOUND)
		result = take(c, p, address, size);
	pthread_mutex_unlock(&blocks_lock);
	return result;
}

int impl_cuMemAllocAsync(uint64_t *address, size_t size, void *stream) { return allocate(address, size, NULL, false, stream); }

int impl_cuMemAllocAsync_ptsz(uint64_t *address, size_t size, void *stream) { return allocate(address, size, NULL, false, stream); }

int impl_cuMemAllocFromPoolAsync(uint64_t *address, size_t size, void *pool, void *stream)
{
	return allocate(address, size, pool, true, stream);
}

int impl_cuMemAllocFromPoolAsync_ptsz(uint64_t *address, size_t size, void *pool, void *stream)
{
	return allocate(address, size, pool, true, stream);
}

int impl_cuMemFree_v2(uint64_t address);

static int free_async(uint64_t address, void *stream)
{
	if (!address || !initialised)
		return initialised ? INVALID_VALUE : NOT_INITIALIZED;
	pthread_mutex_lock(&blocks_lock);
	bool node = graph_capture_free(stream, address);
	pthread_mutex_unlock(&blocks_lock);
	return node ? SUCCESS : impl_cuMemFree_v2(address);
}

int impl_cuMemFreeAsync(uint64_t address, void *stream) { return free_async(address, stream); }

int impl_cuMemFreeAsync_ptsz(uint64_t address, void *stream) { return free_async(address, stream); }

// describe returns the memory that a CUmemLocation and a CUmemAllocationType mean.
static int describe(const struct location *l, int type, enum memory *memory, int *gpu)
{
	*gpu = l->type == ON_DEVICE ? visible_gpu(l->id) : 0;
	if (*gpu < 0)
		return INVALID_DEVICE;
	if (type == MANAGED_TYPE)
		*memory = MANAGED;
	else if (type == PINNED_TYPE && (l->type == ON_DEVICE || l->type == ON_HOST || l->type == ON_HOST_NUMA))
		*memory = l->type == ON_DEVICE ? OF_GPU : OF_HOST;
	else
		return INVALID_VALUE;
	return SUCCESS;
}

int impl_cuMemPoolCreate(void **pool, const struct pool_properties *properties)
{
	if (!initialised)
		return NOT_INITIALIZED;
	enum memory memory;
	int gpu;
	if (!pool || !properties)
		return INVALID_VALUE;
	struct location l = {properties->location_type, properties->location};
	int result = describe(&l, properties->type, &memory, &gpu);
	if (result != SUCCESS)
		return result;
	struct pool *p = calloc(1, sizeof *p);
	if (!p)
		return OUT_OF_MEMORY;
	p->gpu = gpu;
	p->memory = memory;
	p->max_size = properties->max_size;
	pthread_mutex_lock(&blocks_lock);
	struct block *b = block_add(POOL, (uint64_t)p, gpu, 0, NULL);
	if (b)
		b->detail = *pool = p;
	pthread_mutex_unlock(&blocks_lock);
	return b ? SUCCESS : OUT_OF_MEMORY;
}

int impl_cuMemPoolDestroy(void *pool) { return blocks_drop((uint64_t)pool, POOL); }

int impl_cuMemPoolTrimTo(void *pool, size_t keep)
{
	if (!initialised)
		return NOT_INITIALIZED;
	pthread_mutex_lock(&blocks_lock);
	struct pool *p = find_pool(pool);
	if (p)
		shrink(p, keep);
	pthread_mutex_unlock(&blocks_lock);
	return p ? SUCCESS : INVALID_VALUE;
}

int impl_cuMemPoolSetAttribute(void *pool, int attribute, void *value)
{
	if (!initialised)
		return NOT_INITIALIZED;
	pthread_mutex_lock(&blocks_lock);
	struct pool *p = find_pool(pool);
	int result = p && value && attribute >= 1 && attribute <= USED_HIGH ? SUCCESS : INVALID_VALUE;
	if (result == SUCCESS && attribute == ATTRIBUTE_THRESHOLD)
		p->threshold = *(uint64_t *)value;
	else if (result == SUCCESS && (attribute == RESERVED_HIGH || attribute == USED_HIGH)) // value 0: reset
		*(attribute == USED_HIGH ? &p->used_high : &p->reserved_high) = attribute == USED_HIGH ? p->used : p->reserved;
	pthread_mutex_unlock(&blocks_lock);
	return result;
}

int impl_cuMemPoolGetAttribute(void *pool, int attribute, void *value)
{
	if (!initialised)
		return NOT_INITIALIZED;
	pthread_mutex_lock(&blocks_lock);
	struct pool *p = find_pool(pool);
	int result = p && value ? SUCCESS : INVALID_VALUE;
	if (result == SUCCESS)
		switch (attribute) {
		case 1: case 2: case 3: *(int *)value = 1; break; // reuse policies
		case ATTRIBUTE_THRESHOLD: *(uint64_t *)value = p->threshold; break;
		case RESERVED: *(uint64_t *)value = p->reserved; break;
		case RESERVED_HIGH: *(uint64_t *)value = p->reserved_high; break;
		case USED: *(uint64_t *)value = p->used; break;
		case USED_HIGH: *(uint64_t *)value = p->used_high; break;
		default: result = INVALID_VALUE;
		}
	pthread_mutex_unlock(&blocks_lock);
	return result;
}

static int get_pool(void **pool, int device, bool standing)
{
	if (visible_gpu(device) < 0)
		return initialised ? INVALID_DEVICE : NOT_INITIALIZED;
	if (!pool)
		return INVALID_VALUE;
	pthread_mutex_lock(&blocks_lock);
	*pool = standing ? find_pool(&own[visible_gpu(device)]) : device_pool(visible_gpu(device));
	pthread_mutex_unlock(&blocks_lock);
	return SUCCESS;
}

int impl_cuDeviceGetDefaultMemPool(void **pool, int device) { return get_pool(pool, device, true); }

int impl_cuDeviceGetMemPool(void **pool, int device) { return get_pool(pool, device, false); }

int impl_cuDeviceSetMemPool(int device, void *pool)
{
	int gpu = visible_gpu(device);
	if (gpu < 0)
		return initialised ? INVALID_DEVICE : NOT_INITIALIZED;
	pthread_mutex_lock(&blocks_lock);
	struct pool *p = find_pool(pool);
	int result = p && p->gpu == gpu ? SUCCESS : INVALID_VALUE;
	if (result == SUCCESS)
		chosen[gpu] = p;
	pthread_mutex_unlock(&blocks_lock);
	return result;
}

static int pool_at(void **pool, const struct location *l, int type, bool standing)
{
	enum memory memory;
	int gpu;
	if (!pool || !l || !initialised)
		return initialised ? INVALID_VALUE : NOT_INITIALIZED;
	int result = describe(l, type, &memory, &gpu);
	if (result != SUCCESS)
		return result;
	pthread_mutex_lock(&blocks_lock);
	switch (memory) {
	case OF_HOST: *pool = find_pool(&own_host); break;
	case MANAGED: *pool = find_pool(&own_managed[gpu]); break;
	default: *pool = standing ? find_pool(&own[gpu]) : device_pool(gpu);
	}
	pthread_mutex_unlock(&blocks_lock);
	return SUCCESS;
}

int impl_cuMemGetDefaultMemPool(void **pool, const struct location *l, int type) { return pool_at(pool, l, type, true); }

int impl_cuMemGetMemPool(void **pool, const struct location *l, int type) { return pool_at(pool, l, type, false); }

int impl_cuMemSetMemPool(const struct location *l, int type, void *pool)
{
	enum memory memory;
	int gpu;
	if (!l || !initialised)
		return initialised ? INVALID_VALUE : NOT_INITIALIZED;
	int result = describe(l, type, &memory, &gpu);
	pthread_mutex_lock(&blocks_lock);
	struct pool *p = find_pool(pool);
	if (result == SUCCESS && (!p || p->memory != memory || p->gpu != gpu))
		result = INVALID_VALUE;
	if (result == SUCCESS && memory == OF_GPU) // for other memory the choice has no effect here
		chosen[gpu] = p;
	pthread_mutex_unlock(&blocks_lock);
	return result;
}

// Where the driver waits for the GPU, pools free what exceeds their thresholds.
static int synchronize(void)
{
	struct context *c = current_context();
	if (!c)
		return initialised ? INVALID_CONTEXT : NOT_INITIALIZED;
	pthread_mutex_lock(&blocks_lock);
	if (c->active)
		pools_release(c->gpu, false);
	pthread_mutex_unlock(&blocks_lock);
	return SUCCESS;
}

int impl_cuCtxSynchronize(void) { return synchronize(); }

int impl_cuStreamSynchronize(void *stream UNUSED) { return synchronize(); }

int impl_cuStreamSynchronize_ptsz(void *stream UNUSED) { return synchronize(); }
