// SPDX-License-Identifier: Apache-2.0
// verdict: leaking
// Frames of a video as texture arrays: when the size changes, the old array is leaked.
#include "steps.h"

struct texture {
	void *array;
	size_t width, height;
};

static void resize(struct texture *t, size_t width, size_t height)
{
	static const struct channels rgba = {8, 8, 8, 8, 1};
	if (t->width == width && t->height == height)
		return;
	CHECK(cudaMallocArray(&t->array, &rgba, width, height, 0)); // site: leak
	t->width = width, t->height = height;
}

int main(int argc, char **argv)
{
	struct texture t = {0};
	steps_begin(argc, argv);
	for (long step = 0; steps_go(step); step++)
		resize(&t, step / 20 % 2 ? 640 : 1280, step / 20 % 2 ? 360 : 720);
	return 0;
}
