// SPDX-License-Identifier: Apache-2.0
// Shared by the parts of calls_c.
#pragma once
#define _GNU_SOURCE
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct function {
	const char *name;
	const char *arguments; // see calls.h
	void *code;            // of the runtime; driver functions are looked up
};

const struct function *function(const char *name); // NULL: unknown
// call makes the call. Arguments passed by value are given here by their address.
int call(const struct function *f, const uint64_t argument[8]);
_Noreturn void die(const char *line, const char *why, long number);
void read_file(const char *path, const char *line, void *to, size_t size); // up to size
void write_file(const char *path, const char *line, const void *from, size_t size);
int open_shared(const char *path, const char *line); // what the path in the file names
// run_random returns whether to wait at the end.
bool run_random(int argc, char **argv);

// Data of an argument during the call.
struct slot {
	const char *word;
	union {
		uint64_t word64;
		uint32_t word32;
		unsigned char bytes[256];
		struct pitched { void *pointer; size_t pitch, width, height; } pitched;
	} u;
};

// calls_arguments.c
uint64_t number(const char *word, const char *line);
void put32(struct slot *s, size_t at, uint64_t value);
void put64(struct slot *s, size_t at, uint64_t value);
void structure(struct slot *s, char letter, const char *line);
void code(struct slot *slot, uint64_t size);
