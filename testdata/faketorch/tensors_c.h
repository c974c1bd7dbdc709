// SPDX-License-Identifier: Apache-2.0
// Shared by the parts of tensors_c.
#pragma once
#define _GNU_SOURCE
#include "c10_cuda.h"
#include <stdint.h>
#include <stdio.h>

#define SITES 8
#define FRAME __attribute__((noipa))

_Noreturn void die(const char *line, const char *why, long number);
uint64_t nanoseconds(void);

// sites.c: each site is a separate function; the program's books are by site and device.
void *take(int site, size_t size, int device, size_t *got); // NULL: out of memory
void give(void *, int site, int device);
void *take_only(int site, size_t size, int device); // without the books
void print_sites(void);

// modes.c
void run_random(const char *arguments, const char *line);
void free_random(const char *arguments, const char *line);
void run_live(const char *arguments, const char *line);
void run_rate(const char *arguments, const char *line);
