/* SPDX-License-Identifier: GPL-2.0-only */
/* Requests of libcuda to NVIDIA's kernel driver, by ioctl, that take or give back memory of a GPU. The layouts are
 * those of NVOS00, NVOS21, NVOS32, NVOS64 and NV_MEMORY_ALLOCATION_PARAMS in nvos.h (MIT), equal in 535.261,
 * 550.163 and 555.58; libcuda 580.159 was seen to use them on a real driver. */
#ifndef VRAMPROF_REQUESTS_H
#define VRAMPROF_REQUESTS_H

#include "helpers.h"

enum request_number {
	REQUEST_FREE = 0x29,     /* NV_ESC_RM_FREE */
	REQUEST_ALLOC = 0x2b,    /* NV_ESC_RM_ALLOC */
	REQUEST_HEAP = 0x4a,     /* NV_ESC_RM_VID_HEAP_CONTROL, which drivers up to 535 use */
	REQUEST_TRANSFER = 0xd3, /* NV_ESC_IOCTL_XFER_CMD: another one, too large for the number of an ioctl */
};

enum {
	REQUEST_MAGIC = 'F',
	CLASS_LOCAL_MEMORY = 0x40, /* NV01_MEMORY_LOCAL_USER */
	HEAP_ALLOC = 2,            /* NVOS32_FUNCTION_ALLOC_SIZE */
	HEAP_VIRTUAL = 0x80000,    /* NVOS32_ALLOC_FLAGS_VIRTUAL: addresses without memory */
	HEAP_LOCATION = 3 << 25,   /* NVOS32_ATTR_LOCATION: 0 is the GPU's memory */
};

struct request_transfer { /* nv_ioctl_xfer_t */
	u32 number, size;
	u64 body;
};

struct request_free { /* NVOS00 */
	u32 client, parent, handle, status;
};

struct request_alloc { /* the beginning of NVOS21, which has 32 bytes, and of NVOS64, which has 48 */
	u32 client, parent, handle, class;
	u64 parameters;
};

enum {
	STATUS_IN_SHORT = 28,     /* of NVOS21 */
	STATUS_IN_LONG = 40,      /* of NVOS64 */
	LONG_ALLOC = 48,
	SIZE_IN_PARAMETERS = 64,  /* of NV_MEMORY_ALLOCATION_PARAMS */
	SIZE_IN_HEAP = 88,        /* of NVOS32.data.AllocSize */
};

struct request_heap { /* the beginning of NVOS32 with data.AllocSize */
	u32 client, parent, function, vaspace;
	u16 version, other;
	u32 status, total[4], unused, handle, type, flags, attributes;
};
_Static_assert(__builtin_offsetof(struct request_heap, status) == 20, "NVOS32.status");

/* One request: its number and size, and where its structure lies in the process. */
struct request {
	u32 number, size;
	void *body;
};

// Reads from the arguments of an ioctl whether it is one of these requests.
static EBPF_INLINE bool read_request(u64 command, u64 argument, struct request *r)
{
	if ((command >> 8 & 0xff) != REQUEST_MAGIC)
		return false;
	r->number = command & 0xff;
	r->size = command >> 16 & 0x3fff;
	r->body = (void *)argument;
	if (r->number == REQUEST_TRANSFER) {
		struct request_transfer t;
		if (bpf_probe_read_user(&t, sizeof(t), r->body))
			return false;
		r->number = t.number;
		r->size = t.size;
		r->body = (void *)t.body;
	}
	return r->number == REQUEST_FREE || r->number == REQUEST_ALLOC || r->number == REQUEST_HEAP;
}

/* Memory of a GPU that the kernel driver gave, or was asked for. */
struct given {
	u32 client, handle, status;
	u64 size; /* bytes, rounded up by the driver once it has answered */
};

static EBPF_INLINE u64 key_of_object(u32 client, u32 handle) { return (u64)client << 32 | handle; }

static EBPF_INLINE bool read_alloc(struct request *r, struct given *g)
{
	struct request_alloc a;
	if (bpf_probe_read_user(&a, sizeof(a), r->body) || a.class != CLASS_LOCAL_MEMORY)
		return false;
	g->client = a.client;
	g->handle = a.handle;
	return !bpf_probe_read_user(&g->status, 4, r->body + (r->size == LONG_ALLOC ? STATUS_IN_LONG : STATUS_IN_SHORT)) &&
	       !bpf_probe_read_user(&g->size, 8, (void *)a.parameters + SIZE_IN_PARAMETERS);
}

static EBPF_INLINE bool read_heap(struct request *r, struct given *g)
{
	struct request_heap h;
	if (bpf_probe_read_user(&h, sizeof(h), r->body) || h.function != HEAP_ALLOC || h.flags & HEAP_VIRTUAL || h.attributes & HEAP_LOCATION)
		return false;
	g->client = h.client;
	g->handle = h.handle;
	g->status = h.status;
	return !bpf_probe_read_user(&g->size, 8, r->body + SIZE_IN_HEAP);
}

// Reads a request for memory of a GPU; false: it is another request.
static EBPF_INLINE bool read_given(struct request *r, struct given *g)
{
	return r->number == REQUEST_ALLOC ? read_alloc(r, g) : r->number == REQUEST_HEAP && read_heap(r, g);
}

#endif
