// SPDX-License-Identifier: Apache-2.0
// patched_c HOW [WHEN]: overwrites the first bytes of cuMemAlloc_v2 in its memory, as UCX and
// debuggers do, and calls the function:
//
//   none         does not
//   near         with a jump of 5 bytes to another function
//   far          with a jump of 12 bytes
//   breakpoint   with int3, and steps over it in a handler of SIGTRAP
//
// WHEN is "first" (default; before it is ready), "later" (at the end of its first round), "loaded"
// (loads the driver in its first round, and patches it at once) or "alone" (first, in a thread that
// goes on when the main thread has ended). It prints "ready PID". Then, until it
// is killed, it makes a round for each line on stdin: it calls cuMemAlloc_v2 six times with both
// values of the zero flag, and cudaMalloc once. It prints "round N" and, if there is a patch, "patched"
// or, if the function does not begin with known instructions, "not patched". Exit code 1: a call failed
// or bypassed the patch.
#define _GNU_SOURCE
#include "cudart.h"
#include "wait.h"
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

typedef int allocate(uint64_t *address, size_t size);
// call_with calls f with the zero flag clear, or set if clear is 0.
int call_with(uint64_t *address, size_t size, allocate *f, int clear);
__asm__(".text\n.globl call_with\n.type call_with, @function\ncall_with:\n"
	"	mov %rdx, %rax\n	test %ecx, %ecx\n	jmp *%rax\n.size call_with, . - call_with\n");

static allocate *function, *original;
static int (*release)(uint64_t);
static volatile int taken, expected; // calls of the replacement, and those that there must be
static uint8_t replaced; // by the breakpoint
static uint8_t *memory;  // within 2 GiB of the function; before the driver takes all addresses there

__attribute__((noipa)) static int replacement(uint64_t *address, size_t size)
{
	taken++;
	return original(address, size);
}

__attribute__((noreturn)) static void fail(const char *what)
{
	printf("%s\n", what);
	exit(1);
}

static void protect(int rights)
{
	uintptr_t page = (uintptr_t)function & ~(uintptr_t)4095;
	if (mprotect((void *)page, 8192, rights) != 0)
		fail("mprotect");
}

static void overwrite(const void *code, size_t size)
{
	protect(PROT_READ | PROT_WRITE | PROT_EXEC);
	memcpy((void *)function, code, size);
	protect(PROT_READ | PROT_EXEC);
}

static uint8_t *near_function(void)
{
	uintptr_t page = (uintptr_t)function & ~(uintptr_t)4095;
	for (uintptr_t distance = 16 << 20; distance < 1 << 30; distance += 1 << 20) {
		void *p = mmap((void *)(page - distance), 4096, PROT_READ | PROT_WRITE | PROT_EXEC,
			       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
		if (p != MAP_FAILED)
			return p;
	}
	fail("no memory near the function");
}

// move copies the instruction at from to *to, or returns 0 if it knows it not. It returns its length.
static size_t move(uint8_t **to, const uint8_t *from)
{
	static const struct { const char *code; size_t length; } plain[] = {
		{"\x55", 1}, {"\x48\x89\xe5", 3}, {"\x41\x54", 2}, {"\x48\x83\xec\x08", 4},
	};
	int64_t shift = from - *to;
	for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
		if (memcmp(from, plain[i].code, plain[i].length) == 0) {
			*to = mempcpy(*to, from, plain[i].length);
			return plain[i].length;
		}
	if (from[0] == 0x81 && from[1] == 0x3d) { // cmpl $number, distance(%rip)
		int32_t distance;
		memcpy(&distance, from + 2, 4);
		distance += shift;
		memcpy(*to, from, 10);
		memcpy(*to + 2, &distance, 4);
		*to += 10;
		return 10;
	}
	if (from[0] == 0x74) { // je
		int32_t distance = (int8_t)from[1] + shift + 2 - 6;
		memcpy(*to, "\x0f\x84", 2);
		memcpy(*to + 2, &distance, 4);
		*to += 6;
		return 2;
	}
	return 0;
}

static void put_jump(uint8_t *at, const void *target) // 12 bytes
{
	memcpy(at, "\x48\xb8", 2); // movabs $target, %rax; jmp *%rax
	memcpy(at + 2, &target, 8);
	memcpy(at + 10, "\xff\xe0", 2);
}

// install returns false if the function begins with instructions that it does not know.
static bool install(bool far)
{
	uint8_t *to = memory, code[12], *thunk = memory + 2048;
	const uint8_t *from = (const uint8_t *)function;
	size_t size = far ? 12 : 5, moved = 0;
	while (moved < size) {
		size_t length = move(&to, from + moved);
		if (length == 0)
			return false;
		moved += length;
	}
	memcpy(to, "\xff\x25\0\0\0\0", 6); // jmp *(%rip)
	const uint8_t *back = from + moved;
	memcpy(to + 6, &back, 8);
	original = (allocate *)memory;
	put_jump(thunk, replacement);
	if (far) {
		put_jump(code, replacement);
	} else {
		int32_t distance = thunk - (from + 5);
		code[0] = 0xe9;
		memcpy(code + 1, &distance, 4);
	}
	overwrite(code, size);
	return true;
}

// trapped steps over the breakpoint: it removes it, and puts it back after one instruction.
static void trapped(int signal, siginfo_t *info, void *context)
{
	enum { TRAP_FLAG = 1 << 8 };
	greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
	(void)signal;
	if (info->si_code == TRAP_TRACE) {
		overwrite("\xcc", 1);
		registers[REG_EFL] &= ~TRAP_FLAG;
	} else if ((uint8_t *)registers[REG_RIP] == (uint8_t *)function + 1) {
		taken++;
		overwrite(&replaced, 1);
		registers[REG_RIP]--;
		registers[REG_EFL] |= TRAP_FLAG;
	} else {
		_exit(2);
	}
}

static bool set_breakpoint(void)
{
	struct sigaction action = {.sa_sigaction = trapped, .sa_flags = SA_SIGINFO};
	if (sigaction(SIGTRAP, &action, NULL) != 0)
		fail("sigaction");
	replaced = *(uint8_t *)function;
	overwrite("\xcc", 1);
	return true;
}

static void load(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW);
	if (!library)
		fail(dlerror());
	function = (allocate *)dlsym(library, "cuMemAlloc_v2");
	release = (int (*)(uint64_t))dlsym(library, "cuMemFree_v2");
	memory = near_function();
}

static bool patch(const char *how)
{
	if (strcmp(how, "breakpoint") == 0)
		return set_breakpoint();
	return strcmp(how, "none") != 0 && install(strcmp(how, "far") == 0);
}

static void make_round(bool patched)
{
	void *p;
	if (cudaMalloc(&p, 1000) != 0) // which makes a context current
		fail("cudaMalloc");
	for (int i = 0; i < 6; i++) {
		uint64_t address = 0;
		int result = call_with(&address, 4 << 20, function, i & 1);
		if (result != 0 || address == 0 || release(address) != 0)
			fail("a call failed");
	}
	if (patched) // by cudaMalloc too
		expected += 7;
	if (taken != expected)
		fail("a call bypassed the patch");
	if (cudaFree(p) != 0)
		fail("cudaFree");
}

static const char *how = "", *when = "first";

// has_main_thread reports whether the kernel still has the memory of the main thread.
static bool has_main_thread(void)
{
	char name[64], c = '0';
	snprintf(name, sizeof name, "/proc/%d/statm", getpid());
	int fd = open(name, O_RDONLY);
	bool has = fd >= 0 && read(fd, &c, 1) == 1 && c != '0';
	close(fd);
	return has;
}

__attribute__((noreturn)) static void *run(void *unused)
{
	bool loaded = strcmp(when, "loaded") == 0, later = strcmp(when, "later") == 0, patched = false;
	(void)unused;
	while (strcmp(when, "alone") == 0 && has_main_thread())
		usleep(1000);
	if (!loaded) {
		load();
		make_round(false);
		patched = !later && patch(how);
	}
	printf("ready %d\n", getpid());
	for (int i = 1;; i++) {
		wait_go(true);
		if (loaded && i == 1) {
			load();
			patched = patch(how);
		}
		make_round(patched);
		if (later && i == 1)
			patched = patch(how);
		printf("round %d%s\n", i, patched ? " patched" : strcmp(how, "none") != 0 ? " not patched" : "");
	}
}

int main(int argc, char **argv)
{
	if (argc > 1)
		how = argv[1];
	if (argc > 2)
		when = argv[2];
	setvbuf(stdout, NULL, _IOLBF, 0);
	wait_prepare();
	if (strcmp(when, "alone") != 0)
		run(NULL);
	pthread_t thread;
	if (pthread_create(&thread, NULL, run, NULL) != 0)
		fail("pthread_create");
	pthread_exit(NULL);
}
