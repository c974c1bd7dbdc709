// SPDX-License-Identifier: Apache-2.0
// Objects that the driver creates without a size in the call: modules, libraries, green contexts.
// Code is not loaded; each module, library and graph executable takes FAKECUDA_OBJECT bytes of the
// GPU.
#include "blocks.h"

int object_charge(struct block *b)
{
	uint64_t bytes = environment_bytes("FAKECUDA_OBJECT", 0) & ~(GPU_PAGE - 1);
	if (bytes && !charge(b->gpu, &self->gpu[b->gpu].reserved, bytes))
		return OUT_OF_MEMORY;
	b->charged = bytes;
	return SUCCESS;
}

static int make(void **out, const void *from, enum kind kind)
{
	struct context *c;
	int result = usable(&c);
	if (result != SUCCESS)
		return result;
	if (!out || !from)
		return INVALID_VALUE;
	pthread_mutex_lock(&blocks_lock);
	struct block *b = block_add(kind, 0, c->gpu, 0, c);
	result = b ? object_charge(b) : OUT_OF_MEMORY;
	if (result == SUCCESS)
		*out = (void *)b->key;
	else if (b)
		block_drop(b);
	pthread_mutex_unlock(&blocks_lock);
	return result;
}

int impl_cuModuleLoad(void **module, const char *file) { return make(module, file, MODULE); }

int impl_cuModuleLoadData(void **module, const void *image) { return make(module, image, MODULE); }

int impl_cuModuleLoadDataEx(void **module, const void *image, unsigned count UNUSED, int *options UNUSED, void **values UNUSED)
{
	return make(module, image, MODULE);
}

int impl_cuModuleLoadFatBinary(void **module, const void *image) { return make(module, image, MODULE); }

int impl_cuModuleUnload(void *module) { return blocks_drop((uint64_t)module, MODULE); }

int impl_cuLibraryLoadData(void **library, const void *image) { return make(library, image, LIBRARY); }

int impl_cuLibraryLoadFromFile(void **library, const char *file) { return make(library, file, LIBRARY); }

int impl_cuLibraryUnload(void *library) { return blocks_drop((uint64_t)library, LIBRARY); }


int impl_cuGreenCtxCreate(void **out, void *resources UNUSED, int device, unsigned flags UNUSED)
{
	struct context *c;
	int result = initialised ? context_of_green(&c, device) : NOT_INITIALIZED;
	if (result != SUCCESS)
		return result;
	pthread_mutex_lock(&blocks_lock);
	struct block *b = block_add(GREEN, 0, visible_gpu(device), 0, NULL);
	if (b) {
		b->detail = c;
		*out = (void *)b->key;
	}
	pthread_mutex_unlock(&blocks_lock);
	return b ? SUCCESS : OUT_OF_MEMORY;
}

static struct context *of_green(void *green)
{
	pthread_mutex_lock(&blocks_lock);
	struct block *b = block_find((uint64_t)green, GREEN);
	struct context *c = b ? b->detail : NULL;
	pthread_mutex_unlock(&blocks_lock);
	return c;
}

int impl_cuCtxFromGreenCtx(struct context **out, void *green)
{
	struct context *c = out ? of_green(green) : NULL;
	if (!c)
		return INVALID_CONTEXT;
	*out = c;
	return SUCCESS;
}

int impl_cuGreenCtxDestroy(void *green)
{
	struct context *c = of_green(green);
	if (!c)
		return INVALID_CONTEXT;
	int result = blocks_drop((uint64_t)green, GREEN);
	green_release(c);
	return result;
}
