// SPDX-License-Identifier: Apache-2.0
// Stream-ordered memory: pools that keep what they have once got from the GPU,
// until they are trimmed or synchronized. Streams are names only: every
// operation is done at once.
#include "blocks.h"
#include <stdlib.h>
#include <string.h>

#define POOL_UNIT 512
enum { ATTRIBUTE_THRESHOLD = 4, RESERVED, RESERVED_HIGH, USED, USED_HIGH };

struct pool {
	int gpu;
	bool standing; // a device's own pool
	bool gone;     // destroyed, with allocations left
	uint64_t used, reserved, used_high, reserved_high, threshold, max_size, allocations;
};

static struct pool own[MAX_GPUS];      // by physical GPU
static struct pool *chosen[MAX_GPUS];  // by cuDeviceSetMemPool; NULL: the own one

static uint64_t units(uint64_t size) { return (size + POOL_UNIT - 1) & ~(uint64_t)(POOL_UNIT - 1); }

// The caller of this and all static functions below holds blocks_lock.
static bool grow(struct pool *p, uint64_t size)
{
	struct gpu_books *g = &self->gpu[p->gpu];
	uint64_t need = whole_pages(p->used + size);
	if (need > p->reserved) {
		if ((p->max_size && need > p->max_size) || !charge(p->gpu, &g->reserved, need - p->reserved))
			return false;
		atomic_fetch_add(&g->pool_reserved, need - p->reserved);
		p->reserved = need;
	}
	p->used += size;
	p->allocations++;
	p->used_high = p->used > p->used_high ? p->used : p->used_high;
	p->reserved_high = p->reserved > p->reserved_high ? p->reserved : p->reserved_high;
	return true;
}

static void shrink(struct pool *p, uint64_t keep)
{
	uint64_t least = whole_pages(p->used > keep ? p->used : keep);
	if (least >= p->reserved)
		return;
	atomic_fetch_sub(&self->gpu[p->gpu].pool_reserved, p->reserved - least);
	atomic_fetch_sub(&self->gpu[p->gpu].reserved, p->reserved - least);
	p->reserved = least;
}

void pools_refund(struct block *b)
{
	struct pool *p = b->detail;
	BOOK_OUT(&self->gpu[b->gpu], async, b->size);
	p->used -= units(b->size);
	p->allocations--;
	if (p->gone)
		shrink(p, 0);
	if (p->gone && !p->allocations)
		free(p);
}

void pools_end(struct block *b)
{
	struct pool *p = b->detail;
	if (chosen[p->gpu] == p)
		chosen[p->gpu] = NULL;
	shrink(p, 0);
	p->gone = true;
	if (!p->allocations)
		free(p);
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

// Pools outlive contexts; what they hold unused does not.
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
	struct block *b = block_find((uint64_t)handle, POOL);
	return b ? b->detail : NULL;
}

static struct pool *device_pool(int gpu) { return chosen[gpu] ? chosen[gpu] : find_pool(&own[gpu]); }

static int take(struct context *c, struct pool *p, uint64_t *address, uint64_t size)
{
	if (size > 1ull << 45 || !grow(p, units(size)))
		return OUT_OF_MEMORY;
	uint64_t at = addresses_take(size);
	struct block *b = at ? block_add(ASYNC, at, p->gpu, size, c) : NULL;
	if (!b) {
		p->used -= units(size);
		p->allocations--;
		return OUT_OF_MEMORY;
	}
	b->detail = p;
	BOOK_IN(&self->gpu[p->gpu], async, size);
	*address = at;
	return SUCCESS;
}

static int allocate(uint64_t *address, size_t size, const void *handle, bool from_pool)
{
	struct context *c;
	int result = usable(&c);
	if (result != SUCCESS)
		return result;
	if (!address || !size || (from_pool && !handle))
		return INVALID_VALUE;
	pthread_mutex_lock(&blocks_lock);
	struct pool *p = from_pool ? find_pool(handle) : device_pool(c->gpu);
	result = p ? take(c, p, address, size) : INVALID_VALUE;
	pthread_mutex_unlock(&blocks_lock);
	return result;
}

int impl_cuMemAllocAsync(uint64_t *address, size_t size, void *stream UNUSED) { return allocate(address, size, NULL, false); }

int impl_cuMemAllocAsync_ptsz(uint64_t *address, size_t size, void *stream UNUSED) { return allocate(address, size, NULL, false); }

int impl_cuMemAllocFromPoolAsync(uint64_t *address, size_t size, void *pool, void *stream UNUSED)
{
	return allocate(address, size, pool, true);
}

int impl_cuMemAllocFromPoolAsync_ptsz(uint64_t *address, size_t size, void *pool, void *stream UNUSED)
{
	return allocate(address, size, pool, true);
}

int impl_cuMemFree_v2(uint64_t address);

static int free_async(uint64_t address)
{
	if (!address)
		return initialised ? INVALID_VALUE : NOT_INITIALIZED;
	return impl_cuMemFree_v2(address);
}

int impl_cuMemFreeAsync(uint64_t address, void *stream UNUSED) { return free_async(address); }

int impl_cuMemFreeAsync_ptsz(uint64_t address, void *stream UNUSED) { return free_async(address); }

int impl_cuMemPoolCreate(void **pool, const struct pool_properties *properties)
{
	if (!initialised)
		return NOT_INITIALIZED;
	if (!pool || !properties || properties->type != 1 || properties->location_type != 1)
		return INVALID_VALUE;
	int gpu = visible_gpu(properties->location);
	if (gpu < 0)
		return INVALID_DEVICE;
	struct pool *p = calloc(1, sizeof *p);
	if (!p)
		return OUT_OF_MEMORY;
	p->gpu = gpu;
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

// Where the driver waits for the GPU, pools give back what is above their thresholds.
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
