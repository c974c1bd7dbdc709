// SPDX-License-Identifier: Apache-2.0
// The two functions of libc10.so to which allocators report. REPORT and FAILED are their C++ names.
// A c10::Device, two bytes, arrives in the low part of a word; the rest is garbage.
#define EXPORT __attribute__((visibility("default"), noipa))

// A profiler inside the process would set this; nothing does.
static struct profiler {
	void (*report)(void *block, long size, long allocated, long reserved, unsigned long device);
	void (*failed)(long size, long allocated, long reserved, unsigned long device);
} *volatile running;

#ifdef LOOKS_AHEAD // an entry that begins with neither endbr64 nor push
#define PROFILER running
#else
__attribute__((noipa, unused)) static struct profiler *debug_info(int kind) { return kind == 2 ? running : 0; }
#define PROFILER debug_info(2)
#endif

#ifdef REPORT
#ifdef NO_TOTALS
EXPORT void report(void *block, long size, unsigned long device) __asm__(REPORT);
EXPORT void report(void *block, long size, unsigned long device)
{
	struct profiler *p = PROFILER;
	if (p)
		p->report(block, size, 0, 0, device);
}
#else
EXPORT void report(void *block, long size, long allocated, long reserved, unsigned long device) __asm__(REPORT);
EXPORT void report(void *block, long size, long allocated, long reserved, unsigned long device)
{
	struct profiler *p = PROFILER;
	if (p)
		p->report(block, size, allocated, reserved, device);
}
#endif
#endif

#ifdef FAILED
EXPORT void failed(long size, long allocated, long reserved, unsigned long device) __asm__(FAILED);
EXPORT void failed(long size, long allocated, long reserved, unsigned long device)
{
	struct profiler *p = PROFILER;
	if (p)
		p->failed(size, allocated, reserved, device);
}
#endif

EXPORT int c10_present(void) { return 1; } // makes programs link a libc10 without either function
