/* SPDX-License-Identifier: Apache-2.0 */
/* Fills a shape (shapes.cpp) with as many segments as its argument says, and waits for its input to end. */
#include <stdio.h>
#include <stdlib.h>
void shape(int segments);
int main(int argc, char **argv) {
  shape(argc > 1 ? atoi(argv[1]) : 100);
  getchar();
}
