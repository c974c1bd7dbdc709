// SPDX-License-Identifier: Apache-2.0
// Ways to get the driver's functions, and the names of errors.
#include "driver.h"
#include "private.h"
#include <stdio.h>
#include <string.h>

#define EXPORT(symbol, name, version) extern int symbol(void);
#include "exports.h"
#undef EXPORT

static const struct entry {
	const char *name;
	int version;
	int (*function)(void);
} entries[] = {
#define EXPORT(symbol, name, version) {#name, version, symbol},
#include "exports.h"
#undef EXPORT
};

#define PRIVATE_DECLARE(symbol, name, version, arguments) int impl_##symbol arguments;
PRIVATE_FUNCTIONS(PRIVATE_DECLARE)

static const struct private_table private_entries = {
	.bytes = sizeof private_entries,
#define PRIVATE_FILL(symbol, name, version, arguments) .symbol = impl_##symbol,
	PRIVATE_FUNCTIONS(PRIVATE_FILL)
};

enum { PER_THREAD_STREAMS = 2 }; // flag of cuGetProcAddress
enum { FOUND = 0, SYMBOL_NOT_FOUND = 1, VERSION_NOT_SUFFICIENT = 2 };

// find returns the newest entry with that name for a caller built for version.
static const struct entry *find(const char *name, int version, int *status)
{
	const struct entry *best = NULL;
	*status = SYMBOL_NOT_FOUND;
	for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) {
		const struct entry *e = &entries[i];
		if (strcmp(e->name, name) != 0)
			continue;
		if (e->version <= version && (!best || best->version < e->version))
			best = e;
		*status = best ? FOUND : VERSION_NOT_SUFFICIENT;
	}
	return best;
}

int impl_cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t flags, int *status)
{
	int found;
	char twin[64];
	if (!name || !function)
		return INVALID_VALUE;
	const struct entry *e = NULL;
	if ((flags & PER_THREAD_STREAMS) && snprintf(twin, sizeof twin, "%s_ptsz", name) < (int)sizeof twin)
		e = find(twin, version, &found);
	if (!e)
		e = find(name, version, &found);
	*function = e ? (void *)e->function : NULL;
	if (status)
		*status = found;
	return e ? SUCCESS : NOT_FOUND;
}

int impl_cuGetProcAddress(const char *name, void **function, int version, uint64_t flags)
{
	return impl_cuGetProcAddress_v2(name, function, version, flags, NULL);
}

int impl_cuGetExportTable(const void **table, const char *id)
{
	if (!table || !id || memcmp(id, private_id, 16) != 0)
		return INVALID_VALUE;
	*table = &private_entries;
	return SUCCESS;
}

static const struct {
	int code;
	const char *name, *text;
} errors[] = {
	{SUCCESS, "CUDA_SUCCESS", "no error"},
	{INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
	{OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
	{NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
	{4, "CUDA_ERROR_DEINITIALIZED", "driver shutting down"},
	{NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
	{INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
	{INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
	{ALREADY_MAPPED, "CUDA_ERROR_ALREADY_MAPPED", "resource already mapped"},
	{NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
	{CONTEXT_IS_DESTROYED, "CUDA_ERROR_CONTEXT_IS_DESTROYED", "context is destroyed"},
	{HOST_MEMORY_ALREADY_REGISTERED, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED", "part or all of the requested memory range is already mapped"},
	{HOST_MEMORY_NOT_REGISTERED, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED", "pointer does not correspond to a registered memory region"},
	{NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
	{UNKNOWN, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

static int describe(int code, const char **out, bool name)
{
	*out = NULL;
	for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
		if (errors[i].code == code)
			*out = name ? errors[i].name : errors[i].text;
	return *out ? SUCCESS : INVALID_VALUE;
}

int impl_cuGetErrorString(int code, const char **text) { return describe(code, text, false); }

int impl_cuGetErrorName(int code, const char **name) { return describe(code, name, true); }
