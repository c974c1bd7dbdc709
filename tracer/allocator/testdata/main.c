/* SPDX-License-Identifier: Apache-2.0 */
/* Fills a shape (shapes.cpp) with as many segments, of at most so many blocks, as its arguments say, and waits for
   its input to end. */
#include <stdio.h>
#include <stdlib.h>
void shape(int segments, int most);
int main(int argc, char **argv) {
  shape(atoi(argv[1]), atoi(argv[2]));
  getchar();
}
