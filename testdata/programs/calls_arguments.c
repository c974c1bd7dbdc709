// SPDX-License-Identifier: Apache-2.0
// Numbers and structures as arguments of calls_c.
#include "calls_c.h"
#include <stdlib.h>
#include <string.h>

uint64_t number(const char *word, const char *line)
{
	char *end;
	uint64_t n = strtoull(word, &end, 0);
	unsigned shift = *end == 'K' ? 10 : *end == 'M' ? 20 : *end == 'G' ? 30 : *end == 'T' ? 40 : 0;
	if (end == word || end[shift != 0])
		die(line, "expected a number", 0);
	return n << shift;
}

// list parses up to 5 comma-separated numbers.
static void list(const char *word, const char *line, uint64_t n[5])
{
	char text[128];
	snprintf(text, sizeof text, "%s", word);
	char *rest = text;
	memset(n, 0, 5 * sizeof *n);
	for (int i = 0; rest && i < 5; i++)
		n[i] = number(strsep(&rest, ","), line);
}

void put32(struct slot *s, size_t at, uint64_t value) { memcpy(s->u.bytes + at, &(uint32_t){(uint32_t)value}, 4); }
void put64(struct slot *s, size_t at, uint64_t value) { memcpy(s->u.bytes + at, &value, 8); }

static void array_descriptor(struct slot *s, char letter, const uint64_t n[5])
{
	unsigned format = n[3] == 8 ? 0x01 : n[3] == 16 ? 0x02 : n[3] == 32 ? 0x20 : 0xff, at = 0;
	bool old = letter == 'b' || letter == 'd', deep = letter == 'c' || letter == 'd';
	for (int i = 0; i < (deep ? 3 : 2); i++, at += old ? 4 : 8)
		old ? put32(s, at, n[i]) : put64(s, at, n[i]);
	put32(s, at, format);
	put32(s, at + 4, n[4]);
}

// structure fills the structure that the slot points to.
void structure(struct slot *s, char letter, const char *line)
{
	uint64_t n[5] = {0};
	bool host = strchr("PEp", letter) && strncmp(s->word, "host", 4) == 0;
	char text[64];
	snprintf(text, sizeof text, "%s", host ? "0" : s->word);
	char *fd = letter == 'P' ? strstr(s->word, ",fd") : NULL;
	if (fd && !host)
		text[fd - s->word] = 0;
	list(text, line, n);
	switch (letter) {
	case 'E': put32(s, 0, host ? 2 : 1), put32(s, 4, n[0]); break;
	case 'p': put32(s, 0, 1), put32(s, 8, host ? 2 : 1), put32(s, 12, n[0]), put64(s, 24, n[1]); break;
	case 'P': put32(s, 0, 1), put32(s, 4, fd ? 1 : 0), put32(s, 8, host ? 3 : 1), put32(s, 12, n[0]); break;
	case 'A': put32(s, 0, 1), put32(s, 4, n[0]), put32(s, 8, 3); break;
	case 'M': put32(s, 0, 2), put64(s, 8, n[0]); break;
	case 'f': for (uint64_t i = 0; i < n[1]; i++) put32(s, i * 4, n[0]); put32(s, 16, n[0] == 32 ? 2 : 1); break;
	case 'e': put64(s, 0, n[0]), put64(s, 8, n[1]), put64(s, 16, n[2]); break;
	case 'x': case 'y': put32(s, 0, 1), put64(s, 24, n[0]); break;
	case 'z': put64(s, 0, n[1]), put64(s, 8, n[0]); break;
	case 'm':
		array_descriptor(s, 'c', n);
		memmove(s->u.bytes + 8, s->u.bytes, 40);
		put64(s, 0, 0), put32(s, 48, 1);
		break;
	case 'n': // cudaChannelFormatDesc at 8, extent at 32, levels at 60
		for (uint64_t i = 0; i < n[4]; i++)
			put32(s, 8 + 4 * i, n[3]);
		put64(s, 32, n[0]), put64(s, 40, n[1]), put64(s, 48, n[2]), put32(s, 60, 1);
		break;
	case 'a': case 'b': case 'c': case 'd': array_descriptor(s, letter, n); break;
	}
}

// code fills the header of an image of that size; slot->word is its format.
void code(struct slot *slot, uint64_t size)
{
	if (!strcmp(slot->word, "elf")) // sections of 64 bytes are at its end
		put32(slot, 0, 0x464c457f), put64(slot, 40, size - 640), put32(slot, 56, 64 << 16), put32(slot, 60, 10);
	else if (!strcmp(slot->word, "fatbin"))
		put32(slot, 0, 0xba55ed50), put32(slot, 4, 16 << 16 | 1), put64(slot, 8, size - 16);
	else
		memcpy(slot->u.bytes, ".version 8.0", 13);
}
