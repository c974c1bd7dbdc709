// SPDX-License-Identifier: Apache-2.0
// Graphs, as far as they hold memory: an alloc node has an address from its creation, and memory
// from the first launch of its graph until it is freed and trimmed.
#include "blocks.h"
#include <stdlib.h>

static _Atomic int captures; // in progress

struct graph {
	struct block **node;
	int nodes;
	bool launched;
	uint64_t stream; // the stream being captured into it, 0: none
};

static void uncharge(int gpu, uint64_t bytes)
{
	atomic_fetch_sub(&self->gpu[gpu].graph_reserved, bytes);
	atomic_fetch_sub(&self->gpu[gpu].reserved, bytes);
}

// Destroying the context frees all memory of its graphs.
void graph_memory_refund(struct block *b)
{
	if (!b->freed)
		BOOK_OUT(&self->gpu[b->gpu], graph, b->size);
	atomic_fetch_sub(&self->gpu[b->gpu].graph_reserved, b->charged);
}

void graph_end(struct block *b)
{
	struct graph *g = b->detail;
	captures -= g->stream != 0;
	free(g->node);
	free(g);
}

// The caller holds blocks_lock. The block stays, because the graph may be launched again.
static void node_free(struct block *b)
{
	if (!b->freed)
		BOOK_OUT(&self->gpu[b->gpu], graph, b->size);
	b->freed = true;
}

int graph_memory_free(struct block *b)
{
	if (!b->charged)
		return INVALID_VALUE; // never launched
	node_free(b);
	return SUCCESS;
}

static int graph_new(void **out, struct context *owner, enum kind kind)
{
	struct graph *g = calloc(1, sizeof *g);
	struct block *b = g ? block_add(kind, 0, owner ? owner->gpu : 0, 0, owner) : NULL;
	if (!b) {
		free(g);
		return OUT_OF_MEMORY;
	}
	b->detail = g;
	*out = (void *)b->key;
	return SUCCESS;
}

int impl_cuGraphCreate(void **out, unsigned flags)
{
	if (!initialised)
		return NOT_INITIALIZED;
	if (!out || flags)
		return INVALID_VALUE;
	pthread_mutex_lock(&blocks_lock);
	int result = graph_new(out, current_context(), GRAPH);
	pthread_mutex_unlock(&blocks_lock);
	return result;
}

// The static functions below require blocks_lock.
static struct graph *find_graph(void *handle, enum kind kind)
{
	struct block *b = block_find((uint64_t)handle, kind);
	return b ? b->detail : NULL;
}

static bool append(struct graph *g, struct block *memory)
{
	struct block **node = realloc(g->node, sizeof *node * (size_t)(g->nodes + 1));
	if (!node)
		return false;
	g->node = node;
	g->node[g->nodes++] = memory;
	return true;
}

static int add_memory(struct block *graph, int gpu, uint64_t size, uint64_t *address, void **node)
{
	uint64_t at = addresses_take(size);
	struct block *b = at ? block_add(GRAPH_MEMORY, at, gpu, size, graph->owner) : NULL;
	if (!b || !append(graph->detail, b))
		return OUT_OF_MEMORY;
	BOOK_IN(&self->gpu[gpu], graph, size);
	*address = at;
	if (node)
		*node = b;
	return SUCCESS;
}

int impl_cuGraphAddMemAllocNode(void **node, void *graph, void *const *needs UNUSED, size_t count UNUSED, struct node_parameters *p)
{
	struct context *c;
	int result = usable(&c);
	if (result != SUCCESS)
		return result;
	if (!node || !p || !p->size || p->pool[2] != 1)
		return INVALID_VALUE;
	int gpu = visible_gpu(p->pool[3]);
	if (gpu < 0)
		return INVALID_DEVICE;
	pthread_mutex_lock(&blocks_lock);
	struct block *owner = block_find((uint64_t)graph, GRAPH);
	result = owner ? add_memory(owner, gpu, p->size, &p->address, node) : INVALID_VALUE;
	pthread_mutex_unlock(&blocks_lock);
	return result;
}

int impl_cuGraphAddMemFreeNode(void **node, void *graph, void *const *needs UNUSED, size_t count UNUSED, uint64_t address)
{
	if (!initialised)
		return NOT_INITIALIZED;
	pthread_mutex_lock(&blocks_lock);
	struct block *b = node && find_graph(graph, GRAPH) ? block_find(address, GRAPH_MEMORY) : NULL;
	int result = b && !b->freed ? SUCCESS : INVALID_VALUE;
	if (result == SUCCESS) {
		node_free(b);
		*node = b;
	}
	pthread_mutex_unlock(&blocks_lock);
	return result;
}

static int add_node(void **node, void *graph, struct any_node *p)
{
	if (!p || !node)
		return initialised ? INVALID_VALUE : NOT_INITIALIZED;
	switch (p->type) {
	case NODE_ALLOCATES: return impl_cuGraphAddMemAllocNode(node, graph, NULL, 0, &p->memory);
	case NODE_FREES: return impl_cuGraphAddMemFreeNode(node, graph, NULL, 0, p->address);
	}
	*node = p; // other nodes are not recorded
	return SUCCESS;
}

int impl_cuGraphAddNode(void **node, void *graph, void *const *needs UNUSED, size_t count UNUSED, struct any_node *p)
{
	return add_node(node, graph, p);
}

int impl_cuGraphAddNode_v2(void **node, void *graph, void *const *needs UNUSED, const void *edges UNUSED, size_t count UNUSED, struct any_node *p)
{
	return add_node(node, graph, p);
}

static uint64_t stream_key(void *stream)
{
	return (uint64_t)stream > 2 ? (uint64_t)stream : (uint64_t)pthread_self();
}

struct capture {
	uint64_t stream;
	struct block *graph;
};

static void match_capture(struct block *b, void *argument)
{
	struct capture *c = argument;
	if (b->kind == GRAPH && ((struct graph *)b->detail)->stream == c->stream)
		c->graph = b;
}

// captured returns the graph into which a stream is captured. The caller holds blocks_lock.
static struct block *captured(void *stream)
{
	struct capture c = {.stream = stream_key(stream)};
	if (!captures)
		return NULL;
	blocks_each(match_capture, &c);
	return c.graph;
}

int graph_capture_alloc(void *stream, int gpu, uint64_t size, uint64_t *address)
{
	struct block *graph = captured(stream);
	return graph ? add_memory(graph, gpu, size, address, NULL) : NOT_FOUND;
}

bool graph_capture_free(void *stream, uint64_t address)
{
	struct block *b = captured(stream) ? block_find(address, GRAPH_MEMORY) : NULL;
	if (b && !b->freed)
		node_free(b);
	return b != NULL;
}

static int begin_capture(void *stream, void *graph)
{
	struct context *c;
	int result = usable(&c);
	if (result != SUCCESS)
		return result;
	pthread_mutex_lock(&blocks_lock);
	if (captured(stream))
		result = INVALID_VALUE;
	else if (!graph)
		result = graph_new(&graph, c, GRAPH);
	struct graph *g = result == SUCCESS ? find_graph(graph, GRAPH) : NULL;
	if (g) {
		g->stream = stream_key(stream);
		captures++;
	}
	pthread_mutex_unlock(&blocks_lock);
	return g || result != SUCCESS ? result : INVALID_VALUE;
}

#define BEGIN(symbol) \
	int impl_##symbol(void *stream, int mode UNUSED) { return begin_capture(stream, NULL); }
BEGIN(cuStreamBeginCapture)
BEGIN(cuStreamBeginCapture_ptsz)
BEGIN(cuStreamBeginCapture_v2)
BEGIN(cuStreamBeginCapture_v2_ptsz)

int impl_cuStreamBeginCaptureToGraph(void *stream, void *graph, void *needs UNUSED, void *edges UNUSED, size_t count UNUSED, int mode UNUSED)
{
	return graph ? begin_capture(stream, graph) : INVALID_VALUE;
}

int impl_cuStreamBeginCaptureToGraph_ptsz(void *stream, void *graph, void *needs, void *edges, size_t count, int mode)
{
	return impl_cuStreamBeginCaptureToGraph(stream, graph, needs, edges, count, mode);
}

int impl_cuStreamEndCapture(void *stream, void **graph)
{
	if (!initialised)
		return NOT_INITIALIZED;
	pthread_mutex_lock(&blocks_lock);
	struct block *b = graph ? captured(stream) : NULL;
	if (b) {
		((struct graph *)b->detail)->stream = 0;
		captures--;
		*graph = (void *)b->key;
	}
	pthread_mutex_unlock(&blocks_lock);
	return b ? SUCCESS : INVALID_VALUE;
}

int impl_cuStreamGetCaptureInfo(void *stream, int *status, unsigned long long *id)
{
	if (!initialised)
		return NOT_INITIALIZED;
	pthread_mutex_lock(&blocks_lock);
	struct block *b = captured(stream);
	*status = b != NULL;
	*id = b ? b->key : 0;
	pthread_mutex_unlock(&blocks_lock);
	return SUCCESS;
}

int impl_cuStreamEndCapture_ptsz(void *stream, void **graph) { return impl_cuStreamEndCapture(stream, graph); }

int impl_cuGraphInstantiateWithFlags(void **exec, void *graph, unsigned long long flags UNUSED)
{
	struct context *c;
	int result = usable(&c);
	if (result != SUCCESS)
		return result;
	pthread_mutex_lock(&blocks_lock);
	struct graph *g = exec ? find_graph(graph, GRAPH) : NULL;
	result = g ? graph_new(exec, block_find((uint64_t)graph, GRAPH)->owner, GRAPH_EXEC) : INVALID_VALUE;
	struct block *made = result == SUCCESS ? block_find((uint64_t)*exec, GRAPH_EXEC) : NULL;
	struct graph *e = made && (result = object_charge(made)) == SUCCESS ? made->detail : NULL;
	for (int i = 0; e && i < g->nodes; i++)
		if (!append(e, g->node[i]))
			result = OUT_OF_MEMORY;
	if (e)
		g->launched = true; // from here on, its nodes outlive it
	pthread_mutex_unlock(&blocks_lock);
	return result;
}

int impl_cuGraphInstantiate(void **exec, void *graph, void **node UNUSED, char *log UNUSED, size_t size UNUSED)
{
	return impl_cuGraphInstantiateWithFlags(exec, graph, 0);
}

int impl_cuGraphInstantiate_v2(void **exec, void *graph, void **node UNUSED, char *log UNUSED, size_t size UNUSED)
{
	return impl_cuGraphInstantiateWithFlags(exec, graph, 0);
}

int impl_cuGraphInstantiateWithParams(void **exec, void *graph, void *parameters UNUSED)
{
	return impl_cuGraphInstantiateWithFlags(exec, graph, 0);
}

int impl_cuGraphInstantiateWithParams_ptsz(void **exec, void *graph, void *parameters UNUSED)
{
	return impl_cuGraphInstantiateWithFlags(exec, graph, 0);
}

static int launch(void *exec)
{
	if (!initialised)
		return NOT_INITIALIZED;
	pthread_mutex_lock(&blocks_lock);
	struct graph *e = find_graph(exec, GRAPH_EXEC);
	int result = e ? SUCCESS : INVALID_VALUE;
	for (int i = 0; e && i < e->nodes && result == SUCCESS; i++) {
		struct block *b = e->node[i];
		if (b->charged)
			continue;
		uint64_t bytes = whole_pages(b->size);
		if (charge(b->gpu, &self->gpu[b->gpu].reserved, bytes)) {
			atomic_fetch_add(&self->gpu[b->gpu].graph_reserved, bytes);
			b->charged = bytes;
		} else {
			result = OUT_OF_MEMORY;
		}
	}
	pthread_mutex_unlock(&blocks_lock);
	return result;
}

int impl_cuGraphLaunch(void *exec, void *stream UNUSED) { return launch(exec); }

int impl_cuGraphLaunch_ptsz(void *exec, void *stream UNUSED) { return launch(exec); }

int impl_cuGraphExecDestroy(void *exec) { return blocks_drop((uint64_t)exec, GRAPH_EXEC); }

// The nodes of a graph that was never instantiated are freed with it.
int impl_cuGraphDestroy(void *graph)
{
	if (!initialised)
		return NOT_INITIALIZED;
	pthread_mutex_lock(&blocks_lock);
	struct block *b = block_find((uint64_t)graph, GRAPH);
	struct graph *g = b ? b->detail : NULL;
	for (int i = 0; g && !g->launched && i < g->nodes; i++)
		block_drop(g->node[i]);
	if (b)
		block_drop(b);
	pthread_mutex_unlock(&blocks_lock);
	return b ? SUCCESS : INVALID_VALUE;
}

static void trim(struct block *b, void *argument)
{
	if (b->kind != GRAPH_MEMORY || b->gpu != *(int *)argument || !b->freed)
		return;
	uncharge(b->gpu, b->charged);
	b->charged = 0;
}

int impl_cuDeviceGraphMemTrim(int device)
{
	int gpu = visible_gpu(device);
	if (gpu < 0)
		return initialised ? INVALID_DEVICE : NOT_INITIALIZED;
	pthread_mutex_lock(&blocks_lock);
	blocks_each(trim, &gpu);
	pthread_mutex_unlock(&blocks_lock);
	return SUCCESS;
}
