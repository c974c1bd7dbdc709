// SPDX-License-Identifier: Apache-2.0
// The functions in which tensors_c allocates, and its own books.
#include "tensors_c.h"
#include <stdatomic.h>

static struct account {
	_Atomic uint64_t objects, bytes, allocs, alloc_bytes;
} books[SITES][MAX_DEVICES];

#define SITE(n) \
	FRAME static void *site_##n(size_t size, int device, size_t *got) { return torch_alloc(size, device, got); }
SITE(0) SITE(1) SITE(2) SITE(3) SITE(4) SITE(5) SITE(6) SITE(7)
static void *(*const sites[SITES])(size_t, int, size_t *) = {site_0, site_1, site_2, site_3, site_4, site_5, site_6, site_7};

void *take_only(int site, size_t size, int device)
{
	size_t got;
	return sites[site](size, device, &got);
}

FRAME void *take(int site, size_t size, int device, size_t *got)
{
	struct account *a = &books[site][device];
	void *p = sites[site](size, device, got);
	if (p) {
		a->objects++;
		a->allocs++;
		a->bytes += *got;
		a->alloc_bytes += *got;
	}
	return p;
}

void give(void *p, int site, int device)
{
	struct account *a = &books[site][device];
	a->bytes -= torch_free(p);
	a->objects--;
}

void print_sites(void)
{
	for (int s = 0; s < SITES; s++)
		for (int d = 0; d < MAX_DEVICES; d++) {
			struct account *a = &books[s][d];
			if (a->allocs)
				printf("site_%d %d %zu %zu %zu %zu\n", s, d, a->objects, a->bytes, a->allocs, a->alloc_bytes);
		}
	puts("end"), fflush(stdout);
}
