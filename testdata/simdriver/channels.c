// SPDX-License-Identifier: Apache-2.0
// The channels. A thread follows each channel's ring of pushbuffer segments and runs their methods,
// as far as semaphores and copies go. The layouts are those of clc46f.h: they are the same for all
// models here.
#include "sim.h"
#include "nvmisc.h"
#include "class/clc46f.h"
#include "alloc/alloc_channel.h"
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { RING_GET = 0x88, RING_PUT = 0x8c }; // in USERD
enum { SEGMENTS_PER_TURN = 4096 };
enum { BUSY_TURNS = 2000, BUSY_PAUSE_NS = 20000, IDLE_PAUSE_NS = 500000 };
// The semaphore methods that earlier hosts have.
enum { SEMAPHORE_A = 0x10, SEMAPHORE_B = 0x14, SEMAPHORE_C = 0x18, SEMAPHORE_D = 0x1c, NON_STALL_INTERRUPT = 0x20 };
enum { OLD_ACQUIRE = 1, OLD_RELEASE = 2, OLD_ACQUIRE_GEQ = 4, OLD_ACQUIRE_AND = 8 };

static struct channel *channels;
static bool started;

bool is_channel_class(u32 class) { return class == 0xc36f || class == 0xc46f || class == 0xc56f || class == 0xc86f; }

void add_channel(struct object *o, void *parameters)
{
	static u32 last_token;
	NV_CHANNEL_ALLOC_PARAMS *p = parameters;
	struct channel *c = calloc(1, sizeof *c);
	c->object = o;
	c->entries_at = p->gpFifoOffset;
	c->entries = p->gpFifoEntries;
	c->userd = find_object(o->client, p->hUserdMemory[0]);
	c->userd_offset = p->userdOffset[0];
	c->next = channels;
	channels = c;
	o->token = ++last_token;
}

void forget_channel(const struct object *o)
{
	for (struct channel **at = &channels; *at;) {
		struct channel *c = *at;
		if (c->userd == o)
			c->userd = NULL;
		if (c->object == o) {
			*at = c->next;
			free(c);
		} else {
			at = &c->next;
		}
	}
}

static u64 nanoseconds(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (u64)t.tv_sec * 1000000000 + (u64)t.tv_nsec;
}

void release_semaphore(u64 address, u64 payload, enum words words)
{
	u8 *p = gpu_pointer(address, NULL);
	if (!p) {
		sim_log("  semaphore at %#lx is not mapped", address);
		return;
	}
	if (words == FOUR_WORDS)
		((volatile u64 *)p)[1] = nanoseconds();
	__sync_synchronize();
	if (words == TWO_WORDS)
		*(volatile u64 *)p = payload;
	else
		*(volatile u32 *)p = (u32)payload;
}

// host_semaphore returns false where the channel has to wait.
static bool host_semaphore(struct channel *c, u32 value)
{
	u64 address = (u64)(c->host[NVC46F_SEM_ADDR_HI / 4] & 0xff) << 32 | (c->host[NVC46F_SEM_ADDR_LO / 4] & ~3u);
	u64 payload = (u64)c->host[NVC46F_SEM_PAYLOAD_HI / 4] << 32 | c->host[NVC46F_SEM_PAYLOAD_LO / 4];
	bool wide = DRF_VAL(C46F, _SEM_EXECUTE, _PAYLOAD_SIZE, value);
	if (DRF_VAL(C46F, _SEM_EXECUTE, _OPERATION, value) == NVC46F_SEM_EXECUTE_OPERATION_RELEASE) {
		bool timestamp = DRF_VAL(C46F, _SEM_EXECUTE, _RELEASE_TIMESTAMP, value);
		release_semaphore(address, payload, timestamp ? FOUR_WORDS : wide ? TWO_WORDS : ONE_WORD);
		return true;
	}
	u8 *p = gpu_pointer(address, NULL);
	if (!p)
		return true;
	u64 now = wide ? *(volatile u64 *)p : *(volatile u32 *)p;
	payload = wide ? payload : (u32)payload;
	switch (DRF_VAL(C46F, _SEM_EXECUTE, _OPERATION, value)) {
	case NVC46F_SEM_EXECUTE_OPERATION_ACQUIRE: return now == payload;
	case NVC46F_SEM_EXECUTE_OPERATION_ACQ_STRICT_GEQ: return now >= payload;
	case NVC46F_SEM_EXECUTE_OPERATION_ACQ_CIRC_GEQ:
		return wide ? (int64_t)(now - payload) >= 0 : (int32_t)((u32)now - (u32)payload) >= 0;
	case NVC46F_SEM_EXECUTE_OPERATION_ACQ_AND: return (now & payload) != 0;
	case NVC46F_SEM_EXECUTE_OPERATION_ACQ_NOR: return ~(now | payload) != 0;
	}
	return true;
}

static bool old_semaphore(struct channel *c, u32 value)
{
	u64 address = (u64)(c->host[SEMAPHORE_A / 4] & 0xff) << 32 | (c->host[SEMAPHORE_B / 4] & ~3u);
	u32 payload = c->host[SEMAPHORE_C / 4], operation = value & 0x1f;
	if (operation == OLD_RELEASE) {
		release_semaphore(address, payload, value >> 24 & 1 ? ONE_WORD : FOUR_WORDS);
		return true;
	}
	u8 *p = gpu_pointer(address, NULL);
	if (!p)
		return true;
	u32 now = *(volatile u32 *)p;
	switch (operation) {
	case OLD_ACQUIRE: return now == payload;
	case OLD_ACQUIRE_GEQ: return (int32_t)(now - payload) >= 0;
	case OLD_ACQUIRE_AND: return (now & payload) != 0;
	}
	return true;
}

bool run_method(struct channel *c, u32 subchannel, u32 method, u32 value, u32 *data, u32 count)
{
	if (method >= 0x100) {
		run_engine_method(c, subchannel, method, value, data, count);
		return true;
	}
	c->host[method / 4] = value;
	switch (method) {
	case NVC46F_SET_OBJECT: c->class[subchannel] = value & 0xffff; return true;
	case SEMAPHORE_D: return old_semaphore(c, value);
	case NVC46F_SEM_EXECUTE: return host_semaphore(c, value);
	case NON_STALL_INTERRUPT: signal_events(); return true;
	}
	return true;
}

// run_methods runs the methods behind one header.
static bool run_methods(struct channel *c, u32 header)
{
	u32 kind = DRF_VAL(C46F, _DMA, _SEC_OP, header), subchannel = DRF_VAL(C46F, _DMA, _METHOD_SUBCHANNEL, header);
	u32 count = DRF_VAL(C46F, _DMA, _METHOD_COUNT, header), first = DRF_VAL(C46F, _DMA, _METHOD_ADDRESS, header) << 2;
	u32 *data = c->segment + 1;
	for (u32 i = 0; i < count; i++) {
		u32 step = kind == NVC46F_DMA_SEC_OP_INC_METHOD ? i : kind == NVC46F_DMA_SEC_OP_ONE_INC && i ? 1 : 0;
		if (!run_method(c, subchannel, first + 4 * step, data[i], data + i, count - i))
			return false; // later it runs all of them again, which has no other effect
		if (is_inline_data(c, subchannel, first + 4 * step))
			break; // the first word brought all
	}
	return true;
}

// run_segment runs the current segment; false: it has to wait.
static bool run_segment(struct channel *c)
{
	while (c->left) {
		u32 header = *c->segment, words = 1, count = DRF_VAL(C46F, _DMA, _METHOD_COUNT, header);
		switch (DRF_VAL(C46F, _DMA, _SEC_OP, header)) {
		case NVC46F_DMA_SEC_OP_IMMD_DATA_METHOD:
			if (!run_method(c, DRF_VAL(C46F, _DMA, _METHOD_SUBCHANNEL, header), DRF_VAL(C46F, _DMA, _METHOD_ADDRESS, header) << 2, count, NULL, 0))
				return false;
			break;
		case NVC46F_DMA_SEC_OP_END_PB_SEGMENT:
			words = c->left;
			break;
		case NVC46F_DMA_SEC_OP_INC_METHOD:
		case NVC46F_DMA_SEC_OP_NON_INC_METHOD:
		case NVC46F_DMA_SEC_OP_ONE_INC:
			if (count + 1 > c->left) {
				sim_log("  a header %#x has %u words", header, c->left);
				words = c->left;
			} else if (!run_methods(c, header)) {
				return false;
			} else {
				words = count + 1;
			}
		}
		c->segment += words;
		c->left -= words;
	}
	return true;
}

static void next_segment(struct channel *c)
{
	u32 *entry = (u32 *)gpu_pointer(c->entries_at + (u64)NVC46F_GP_ENTRY__SIZE * c->get, NULL);
	c->segment = NULL;
	if (entry && (c->left = DRF_VAL(C46F, _GP_ENTRY1, _LENGTH, entry[1])))
		c->segment = (u32 *)gpu_pointer((u64)DRF_VAL(C46F, _GP_ENTRY1, _GET_HI, entry[1]) << 32 | (entry[0] & ~3u), NULL);
	if (!c->segment)
		c->left = 0;
}

// run_channel runs what has been submitted. It returns whether anything was.
static bool run_channel(struct channel *c)
{
	if (!c->userd || !c->userd->memory)
		return false;
	u8 *ring = c->userd->memory + c->userd_offset;
	for (int i = 0; i < SEGMENTS_PER_TURN; i++) {
		u32 put = *(volatile u32 *)(ring + RING_PUT);
		if (!c->left) {
			if (put == c->get || put >= c->entries)
				return i > 0;
			next_segment(c);
		}
		if (c->left && !run_segment(c))
			return i > 0;
		c->get = (c->get + 1) % c->entries;
		*(volatile u32 *)(ring + RING_GET) = c->get;
	}
	return true;
}

static void *run_channels(void *unused)
{
	(void)unused;
	for (u64 idle = 0;; idle++) {
		pthread_mutex_lock(&sim_lock);
		bool busy = false;
		for (struct channel *c = channels; c; c = c->next)
			busy |= run_channel(c);
		pthread_mutex_unlock(&sim_lock);
		if (busy) {
			idle = 0;
			continue;
		}
		struct timespec pause = {0, idle < BUSY_TURNS ? BUSY_PAUSE_NS : IDLE_PAUSE_NS};
		nanosleep(&pause, NULL);
	}
	return NULL;
}

void start_channels(void)
{
	pthread_t thread;
	sigset_t all, before;
	if (started)
		return;
	started = true;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	pthread_create(&thread, NULL, run_channels, NULL);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
}

// after_fork_in_child forgets the thread, which the child does not have, and the parent's channels.
void after_fork_in_child(void)
{
	started = false;
	channels = NULL;
}
