// SPDX-License-Identifier: Apache-2.0
// Arrays and mipmaps, pitched memory, and pinning of existing host memory.
#include "blocks.h"

#define PITCH 512
enum { ARRAY_LAYERED = 1, ARRAY_SPARSE = 0x40, ARRAY_DEFERRED = 0x80 };

static uint64_t format_bytes(unsigned format)
{
	switch (format) {
	case 0x01: case 0x08: return 1;
	case 0x02: case 0x09: case 0x10: return 2;
	case 0x03: case 0x0a: case 0x20: return 4;
	}
	return 0;
}

static uint64_t at_least_1(uint64_t n) { return n ? n : 1; }

// array_size returns the size of all levels, or 0 if the descriptor is invalid.
static uint64_t array_size(const struct array3d *d, unsigned levels)
{
	uint64_t element = format_bytes(d->format) * d->channels, sum = 0;
	uint64_t w = d->width, h = at_least_1(d->height), depth = at_least_1(d->depth);
	if (!w || (d->channels != 1 && d->channels != 2 && d->channels != 4) || w > 1u << 20 || h > 1u << 20 || depth > 1u << 16)
		return 0;
	for (unsigned i = 0; i < levels; i++) {
		sum += w * h * depth * element;
		if (i + 1 < levels && w == 1 && h == 1 && (depth == 1 || (d->flags & ARRAY_LAYERED)))
			return 0; // more levels than the size allows
		w = at_least_1(w / 2);
		h = at_least_1(h / 2);
		if (!(d->flags & ARRAY_LAYERED))
			depth = at_least_1(depth / 2);
	}
	return sum;
}

static int create(void **out, const struct array3d *d, unsigned levels, enum kind kind)
{
	struct context *c;
	int result = usable(&c);
	if (result != SUCCESS)
		return result;
	uint64_t size = out ? array_size(d, levels) : 0;
	if (!size)
		return INVALID_VALUE;
	if (d->flags & (ARRAY_SPARSE | ARRAY_DEFERRED))
		return NOT_SUPPORTED;
	uint64_t pages = whole_pages(size);
	struct gpu_books *g = &self->gpu[c->gpu];
	if (size > 1ull << 45 || !charge(c->gpu, &g->reserved, pages))
		return OUT_OF_MEMORY;
	pthread_mutex_lock(&blocks_lock);
	struct block *b = block_add(kind, 0, c->gpu, size, c);
	if (b) {
		b->charged = pages;
		BOOK_IN(g, array, size);
		*out = (void *)b->key;
	} else {
		atomic_fetch_sub(&g->reserved, pages);
	}
	pthread_mutex_unlock(&blocks_lock);
	return b ? SUCCESS : OUT_OF_MEMORY;
}

static int create2d(void **out, size_t width, size_t height, unsigned format, unsigned channels)
{
	struct array3d d = {.width = width, .height = height, .format = format, .channels = channels};
	return create(out, &d, 1, ARRAY);
}

int impl_cuArrayCreate_v2(void **out, const struct array2d *d)
{
	return d ? create2d(out, d->width, d->height, d->format, d->channels) : INVALID_VALUE;
}

int impl_cuArrayCreate(void **out, const struct array2d_v1 *d)
{
	return d ? create2d(out, d->width, d->height, d->format, d->channels) : INVALID_VALUE;
}

int impl_cuArray3DCreate_v2(void **out, const struct array3d *d) { return d ? create(out, d, 1, ARRAY) : INVALID_VALUE; }

int impl_cuArray3DCreate(void **out, const struct array3d_v1 *old)
{
	if (!old)
		return INVALID_VALUE;
	struct array3d d = {old->width, old->height, old->depth, old->format, old->channels, old->flags};
	return create(out, &d, 1, ARRAY);
}

int impl_cuArrayDestroy(void *array) { return blocks_drop((uint64_t)array, ARRAY); }

int impl_cuMipmappedArrayCreate(void **out, const struct array3d *d, unsigned levels)
{
	return d && levels && levels < 32 ? create(out, d, levels, MIPMAP) : INVALID_VALUE;
}

int impl_cuMipmappedArrayDestroy(void *array) { return blocks_drop((uint64_t)array, MIPMAP | MAPPED_MIPMAP); }

int impl_cuMemAllocPitch_v2(uint64_t *address, size_t *pitch, size_t width, size_t height, unsigned element)
{
	struct context *c;
	int result = usable(&c);
	if (result != SUCCESS)
		return result;
	if (!address || !pitch || !width || !height || (element != 4 && element != 8 && element != 16))
		return INVALID_VALUE;
	size_t wide = (width + PITCH - 1) & ~(size_t)(PITCH - 1), size;
	if (wide < width || __builtin_mul_overflow(wide, height, &size) || size > 1ull << 45)
		return OUT_OF_MEMORY;
	result = arena_alloc(&c->arena, size, false, address);
	if (result == SUCCESS)
		*pitch = wide;
	return result;
}

struct span {
	uint64_t from, to;
	bool overlaps;
};

static void compare(struct block *b, void *argument)
{
	struct span *s = argument;
	if (b->kind == REGISTERED && b->key < s->to && s->from < b->key + b->size)
		s->overlaps = true;
}

static int host_register(void *p, size_t size)
{
	struct context *c;
	int result = usable(&c);
	if (result != SUCCESS)
		return result;
	struct span s = {(uint64_t)p, (uint64_t)p + size, false};
	if (!p || !size || s.to < s.from)
		return INVALID_VALUE;
	pthread_mutex_lock(&blocks_lock);
	blocks_each(compare, &s);
	struct block *b = s.overlaps ? NULL : block_add(REGISTERED, (uint64_t)p, c->gpu, size, c);
	if (b)
		BOOK_IN(self, registered, size);
	pthread_mutex_unlock(&blocks_lock);
	return b ? SUCCESS : s.overlaps ? HOST_MEMORY_ALREADY_REGISTERED : OUT_OF_MEMORY;
}

int impl_cuMemHostRegister_v2(void *p, size_t size, unsigned flags UNUSED) { return host_register(p, size); }

int impl_cuMemHostRegister(void *p, size_t size, unsigned flags UNUSED) { return host_register(p, size); }

int impl_cuMemHostUnregister(void *p)
{
	if (!p)
		return INVALID_VALUE;
	int result = blocks_drop((uint64_t)p, REGISTERED);
	return result == INVALID_VALUE ? HOST_MEMORY_NOT_REGISTERED : result;
}
