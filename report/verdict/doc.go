// SPDX-License-Identifier: Apache-2.0

// Package verdict judges whether the memory of each site, and of each line of the user's code,
// grows without end.
//
//	verdicts := verdict.Judge(snapshot, stacks)
//	for _, g := range verdict.JudgeLines(snapshot, verdicts) { // the leaking line comes first
//		fmt.Println(g.Class, g.Line.File, g.Line.Line, g.Evidence)
//	}
//
// # Who survives
//
// Live memory that rises is no proof: caches fill, programs warm up, evaluations come and go. What
// tells a leak is the age of those who survive. The ledger divides the life of each site into at
// most 16 windows of equal length, and knows of each what was allocated in it and how much of that
// still lives (ledger.Cohort). Then
//
//   - a leak has survivors in every window, about as many in each, up to now;
//   - warm-up and weights have them in the first windows, and none later;
//   - a working set or a queue has them in the newest windows only, as it frees the old ones;
//   - a cache that is full has them in many windows, fewer the older they are, and live memory does not rise by what survives.
//
// This is the count of surviving generations, by which the NetBeans profiler finds leaks in Java
// (J. Sedlacek: Uncovering Memory Leaks Using NetBeans Profiler; a generation there is the time
// between two collections, here a window), with numbers in place of a count, so that tests can be
// made of them: by chance alone, would the newest windows be without survivors? Would one half have
// so few? It is exact, while staleness (M. Hauswirth, T. Chilimbi: Low-overhead Memory Leak
// Detection Using Adaptive Statistical Profiling, ASPLOS 2004) needs to see accesses, which on a
// GPU nobody does, and growth by types (M. Jump, K. McKinley: Cork, POPL 2007) finds the type, not
// the line.
//
// Two more methods stand beside it. The trend of a site's floor, the least that it had in each
// window, must agree: by the slope of Theil and Sen (P. Sen: Estimates of the Regression
// Coefficient Based on Kendall's Tau, JASA 63, 1968) it has to rise by what survives. The floor is
// blind to what comes and goes within a window: evaluations and checkpoints do not count. Where
// nothing survives for long and memory grows all the same, as when results are copied into a longer
// list each time, the floor decides alone, by the test of Mann and Kendall and by more rules: not
// in few steps, not slowing down, to new maxima, by more than its noise and that of the sample,
// without a pause at the end. They are needed, as that test alone is known to see trends where
// there are none (F. Machida et al.: On the Effectiveness of Mann-Kendall Test for Detection of
// Software Aging, ISSREW 2013).
//
// The score is the rule of succession, as Scalene has it for allocations at new maxima of the
// footprint (E. Berger, S. Stern, J. Altmayer Pizzorno: Triangulating Python Performance Issues
// with Scalene, OSDI 2023), over windows instead: of n windows k added to the growth, so the next
// one does with probability (k+1)/(n+2). Scalene watches one allocation at each maximum, since it
// cannot afford more; the ledger has them all. High-water marks in the evidence are windows in
// which the site's live bytes reached a new maximum.
//
// # How much evidence
//
// Leaking is said only of growth over at least a quarter of the time in which the process was seen
// to allocate, with six survivors in four windows, or twelve in three; four times as many where the
// floor is too noisy to agree. Before that, it is Growing, "too early". Growth to where a site was
// before is none: an evaluation does so each time. All these are shares and numbers, not times: a
// program that runs a thousand times as fast gets the same verdict. Where tensors are sampled, the
// numbers are those that were seen. Time after a process's last allocation counts for nothing.
//
// Three things are looked at before growth is called a leak. A process that frees all when it ends,
// as Python does, is judged by what was before. Tensors that take the place of older ones, which
// the ledger saw freed but not allocated, make a site Growing. And segments, out of which PyTorch
// gives tensors, are Cache wherever the tensors are reported: a leak shows in those.
//
// What no method can tell: a cache that will be full one day, but was not while it was watched, is
// a leak until then. After an attach to a running process this holds for driver allocations that
// replace older ones, too: their free is seen, but not the size of what it freed.
//
// # Which line
//
// A profiler sees who allocates, not who keeps. JudgeLines sums the stacks of one line of the
// user's code, so that a line with a hundred stacks, each of which grows too slowly to be sure, is
// one leak. Where a graph is kept, all lines of its forward pass leak; Advise then names the line
// that they have in common and the one that calls it, which often is the one that keeps.
package verdict
