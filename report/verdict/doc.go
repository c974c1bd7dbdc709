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
// Rising live memory is no proof: caches fill, programs warm up, evaluations come and go. A leak
// shows in the age of the survivors. The ledger divides the life of each site into at most 16
// windows of equal length. For each window it knows what was allocated in it, and how much of that
// is still live (ledger.Cohort). Then
//
//   - a leak has survivors in every window, about equally many, up to now;
//   - warm-up and weights have survivors in the first windows, and none later;
//   - a working set or a queue has survivors in the newest windows only;
//   - a full cache has survivors in many windows, fewer the older they are, and live memory does not
//     rise by as much as survives.
//
// This counts surviving generations, as the NetBeans profiler does to find leaks in Java (J.
// Sedlacek: Uncovering Memory Leaks Using NetBeans Profiler). A generation there is the time
// between two collections; here it is a window. Exact numbers replace the count, so that
// statistical tests are possible: would the newest windows have no survivors by chance? Would one
// half have so few? Staleness (M. Hauswirth, T. Chilimbi: Low-overhead Memory Leak Detection Using
// Adaptive Statistical Profiling, ASPLOS 2004) needs accesses, which nobody sees on a GPU. Growth
// by type (M. Jump, K. McKinley: Cork, POPL 2007) finds the type, not the line.
//
// Two more methods complete it. The trend of a site's floor, the least that it held in each window,
// must agree: its slope by Theil and Sen (P. Sen: Estimates of the Regression Coefficient Based on
// Kendall's Tau, JASA 63, 1968) must be as large as what survives. The floor ignores what comes and
// goes within a window, such as evaluations and checkpoints. Where memory grows although no block
// survives for long, as when results are copied into a longer list each time, the floor decides
// alone: by the test of Mann and Kendall, and by more rules. It must rise in many steps, without
// slowing down or pausing at the end, to new maxima, by more than its noise and that of the sample,
// and by steps whose mean is above 0 with its 95 % interval: a level that wanders also has trends.
// Where all tensors are replaced again and again, the sample is drawn anew each time, and the floor
// is the least of many samples. Then the mean of a window takes its place, in which these samples
// average out. It also takes its place where memory comes and goes, if it is mostly there and each
// window reaches a new maximum. The test of Mann and Kendall alone sees trends where there are none
// (F. Machida et al.: On the Effectiveness of Mann-Kendall Test for Detection of Software Aging,
// ISSREW 2013).
//
// The score is the rule of succession, which Scalene applies to allocations at new maxima of the
// footprint (E. Berger, S. Stern, J. Altmayer Pizzorno: Triangulating Python Performance Issues
// with Scalene, OSDI 2023). Here it applies to windows: if k of n windows added to the growth, the
// next one does with probability (k+1)/(n+2). High-water marks in the evidence are windows in which
// the site's live bytes reached a new maximum.
//
// # What ends
//
// Growth that ended is no leak: a buffer that is full, traffic that stays as it is, layers that are
// all unfrozen, a leak that was repaired. So the last quarter of the windows must go on: neither
// survivors nor level may fall to less than 0.4 of what they were per time. Tests take survivors to
// be independent; where they come in bursts, with windows in between that have none, the bursts
// count. A pause that is longer than all before may be the end, too.
//
// Garbage may be collected in waves. The first wave looks like a leak, so that no leak is proven by
// less than 5 s of growth: this threshold alone is a time. Where the floor fell by half before,
// memory must grow to four times the level before the fall, or for four times as long.
//
// Memory can also move: one bounded cache may have several callers. Therefore a line's sum must
// grow where one of its stacks does, and the sum of all memory of that kind in the process, also of
// what is older than the attach, where one of its lines does. Where survivors are the proof, noise
// may hide it.
//
// # How much evidence
//
// A verdict of Leaking on a whole life needs growth over at least a quarter of the time in which
// the process was seen to allocate, with six survivors in four windows or twelve in three, and four
// times as many if the floor is too noisy to agree. Before that the verdict is Growing, with the
// time that it needs more: "too early: grows for 3.0s only, needs 2.0s more to decide". Growth up
// to an earlier level does not count: each evaluation does that. But for the least time, these are
// shares and counts, so a faster program gets the same verdict. For sampled tensors, the counts are
// those of the sample. Where the limit on stacks left fewer of a line's survivors in it, the line
// is Growing: the sample cannot tell. Time after a process's last allocation does not count.
//
// Three cases are handled first. A process that frees everything when it ends, as Python does, is
// judged by what it held before. A site whose tensors replace tensors from before the attach, which
// the ledger saw freed but not allocated, is Growing. Segments of PyTorch's allocator are Cache if
// their tensors are reported: a leak shows in the tensors.
//
// Two cases cannot be decided. A cache that is not full by the end of the session looks like a
// leak. After an attach to a running process, so do driver allocations that replace older ones:
// their frees are seen, but not their sizes.
//
// # What was not traced
//
// A budget pauses the tracing of tensors, and most blocks lose their stacks in a pause. What a line
// kept in the phases between pauses is an estimate of what it keeps: blocks more than four times as
// old as all of the line that were seen to be freed count as survivors (Site.Presumed), per time
// that was traced. A queue that is longer than a phase looks like a leak. But the least that all
// tensors had in each phase is exact (Phase.Floor). So a line is Leaking only where that rises, and
// where lines that keep more do not explain the rise. Where lines keep far more together than that,
// all of them are Growing: nobody knows which ones do.
//
// # The recent past
//
// A year hides a leak of an hour. The ledger also has windows from now back that are the longer,
// the older they are (ledger.Recent), which show horizons of 10 to 14 minutes, four times that, and
// so on. Each is judged as if it were a life, but growth must take half of it and be new: above
// what windows of that length had at least before (Record.Floor), by half of the growth and a
// quarter of what they varied by; or with twice as many survivors in a window as there ever were at
// that age (Record.Kept and Young). The latter proves leaks that the noise of a level hides. Growth
// that was faster before is a warm-up. The worst verdict wins. The first of a kind is new: a first
// morning, a cache that fills.
//
// # Which line
//
// A profiler sees which line allocates, not which line keeps. JudgeLines sums the stacks of one
// line of the user's code, so that a line with a hundred stacks, each growing too slowly to be
// sure, is one leak. If a graph is kept, all lines of its forward pass leak. Advise then names the
// line that they have in common and its caller, which often is the one that keeps the graph. Stacks
// do not prove a graph: forward hooks keep the same tensors. Holders do, so that Advise says
// "perhaps" without them. It says nothing where they keep no graph, where a decorator switches
// gradients off, or where a model leaks together with its parameters or its optimizer's state.
//
// # Who keeps it
//
// Two walks of a process show how much what keeps a line's memory has grown. That is part of the
// evidence, and Advise has a remedy for each kind of container. Growth of a container alone
// convicts nothing: caches grow, too. But memory whose holders are known and did not grow, in walks
// that cover most of the process's time, is Growing at most: its survivors took the place of
// others.
package verdict
