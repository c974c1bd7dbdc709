// SPDX-License-Identifier: Apache-2.0
// Memory of other processes and other APIs. The process that opens it is never charged.
#include "blocks.h"
#include <string.h>

#define HANDLE_MAGIC 0x6370695f656b6166ull
#define POINTER_MAGIC 0x7274705f656b6166ull

static struct handle describe(uint64_t magic, uint64_t address, uint64_t size, int gpu)
{
	return (struct handle){.magic = magic, .pid = self->pid, .start = self->start, .address = address, .size = size,
			       .slot = own_slot(), .gpu = gpu};
}

int impl_cuIpcGetMemHandle(struct handle *handle, uint64_t address)
{
	if (!initialised)
		return NOT_INITIALIZED;
	struct context *c = context_at(address);
	uint64_t size = c ? arena_size(&c->arena, address) : 0;
	if (!handle || !size)
		return INVALID_VALUE;
	*handle = describe(HANDLE_MAGIC, address, size, c->gpu);
	return SUCCESS;
}

struct search {
	const struct handle *handle;
	struct context *context;
	struct block *found;
};

static void match(struct block *b, void *argument)
{
	struct search *s = argument;
	if (b->kind == OPENED && b->owner == s->context && b->origin[0] == s->handle->pid && b->origin[1] == s->handle->address)
		s->found = b;
}

// Opening it again in the same context returns the same address.
static int open_handle(uint64_t *address, const struct handle *h)
{
	struct context *c;
	int result = usable(&c);
	if (result != SUCCESS)
		return result;
	if (!address || h->magic != HANDLE_MAGIC || !slot_alive(h->slot, h->pid, h->start))
		return INVALID_VALUE;
	if (h->slot == own_slot() || c->gpu != h->gpu)
		return INVALID_CONTEXT;
	struct search s = {h, c, NULL};
	pthread_mutex_lock(&blocks_lock);
	blocks_each(match, &s);
	if (s.found) {
		s.found->references++;
		*address = s.found->key;
	} else {
		uint64_t at = addresses_take(h->size);
		struct block *b = at ? block_add(OPENED, at, c->gpu, h->size, c) : NULL;
		if (b) {
			b->origin[0] = h->pid;
			b->origin[1] = h->address;
			BOOK_IN(&self->gpu[c->gpu], imported, h->size);
			*address = at;
		}
		result = b ? SUCCESS : OUT_OF_MEMORY;
	}
	pthread_mutex_unlock(&blocks_lock);
	return result;
}

int impl_cuIpcOpenMemHandle_v2(uint64_t *address, struct handle h, unsigned flags)
{
	return flags > 1 ? INVALID_VALUE : open_handle(address, &h);
}

int impl_cuIpcOpenMemHandle(uint64_t *address, struct handle h, unsigned flags)
{
	return flags > 1 ? INVALID_VALUE : open_handle(address, &h);
}

int impl_cuIpcCloseMemHandle(uint64_t address)
{
	if (!initialised)
		return NOT_INITIALIZED;
	pthread_mutex_lock(&blocks_lock);
	struct block *b = block_find(address, OPENED);
	if (b && --b->references == 0)
		block_drop(b);
	pthread_mutex_unlock(&blocks_lock);
	return b ? SUCCESS : INVALID_VALUE;
}

int impl_cuMemPoolExportPointer(struct handle *data, uint64_t address)
{
	if (!initialised)
		return NOT_INITIALIZED;
	pthread_mutex_lock(&blocks_lock);
	struct block *b = data ? block_find(address, ASYNC) : NULL;
	if (b)
		*data = describe(POINTER_MAGIC, address, b->size, b->gpu);
	pthread_mutex_unlock(&blocks_lock);
	return b ? SUCCESS : INVALID_VALUE;
}

// Any pool works: pools themselves are not shared here.
int impl_cuMemPoolImportPointer(uint64_t *address, void *pool UNUSED, const struct handle *data)
{
	struct context *c;
	int result = usable(&c);
	if (result != SUCCESS)
		return result;
	if (!address || !data || data->magic != POINTER_MAGIC || data->gpu < 0 || data->gpu >= MAX_GPUS || data->slot == own_slot() ||
	    !slot_alive(data->slot, data->pid, data->start))
		return INVALID_VALUE;
	pthread_mutex_lock(&blocks_lock);
	uint64_t at = addresses_take(data->size);
	struct block *b = at ? block_add(POINTER, at, data->gpu, data->size, c) : NULL;
	if (b) {
		BOOK_IN(&self->gpu[data->gpu], imported, data->size);
		*address = at;
	}
	pthread_mutex_unlock(&blocks_lock);
	return b ? SUCCESS : OUT_OF_MEMORY;
}

int impl_cuImportExternalMemory(void **out, const struct external *d)
{
	struct context *c;
	int result = usable(&c);
	if (result != SUCCESS)
		return result;
	if (!out || !d || d->type < 1 || d->type > 8 || !d->size)
		return INVALID_VALUE;
	pthread_mutex_lock(&blocks_lock);
	struct block *b = block_add(EXTERNAL, 0, c->gpu, d->size, c);
	if (b) {
		BOOK_IN(&self->gpu[c->gpu], imported, d->size);
		*out = (void *)b->key;
	}
	pthread_mutex_unlock(&blocks_lock);
	return b ? SUCCESS : OUT_OF_MEMORY;
}

int impl_cuExternalMemoryGetMappedBuffer(uint64_t *address, void *external, const struct buffer *d)
{
	struct context *c;
	int result = usable(&c);
	if (result != SUCCESS)
		return result;
	pthread_mutex_lock(&blocks_lock);
	struct block *e = block_find((uint64_t)external, EXTERNAL);
	if (!address || !d || !e || !d->size || d->offset > e->size || d->size > e->size - d->offset) {
		result = INVALID_VALUE;
	} else {
		uint64_t at = addresses_take(d->size);
		if (at && block_add(BUFFER, at, e->gpu, d->size, c))
			*address = at;
		else
			result = OUT_OF_MEMORY;
	}
	pthread_mutex_unlock(&blocks_lock);
	return result;
}

int impl_cuExternalMemoryGetMappedMipmappedArray(void **out, void *external, const struct mapped_mipmap *d)
{
	struct context *c;
	int result = usable(&c);
	if (result != SUCCESS)
		return result;
	pthread_mutex_lock(&blocks_lock);
	struct block *e = block_find((uint64_t)external, EXTERNAL);
	struct block *b = out && d && e && d->array.width && d->levels ? block_add(MAPPED_MIPMAP, 0, e->gpu, 0, c) : NULL;
	if (b)
		*out = (void *)b->key;
	pthread_mutex_unlock(&blocks_lock);
	return b ? SUCCESS : INVALID_VALUE;
}

int impl_cuDestroyExternalMemory(void *external) { return blocks_drop((uint64_t)external, EXTERNAL); }
