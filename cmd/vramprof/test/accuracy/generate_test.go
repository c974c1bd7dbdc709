// SPDX-License-Identifier: Apache-2.0

package accuracy

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// A generator writes the functions of a random C++ program; testdata/accuracy/walk.h describes how
// they note their position. Each function has one line per call, so a line identifies its function.
type generator struct {
	rng      *rand.Rand
	text     strings.Builder
	line     int
	numbers  *int // the number of functions in all files of the program
	library  bool
	inlines  []int // so far
	throwers []int
	plain    []int // declared first
	virtuals []int
}

const firstFunction = 100 // walk.cc uses the numbers below

// generateProgram returns the sources of a program and of the library that it loads.
func generateProgram(seed uint64, functions int) (program, library string) {
	numbers := firstFunction
	g := &generator{rng: rand.New(rand.NewPCG(seed, 1)), numbers: &numbers}
	program = g.file(functions)
	l := &generator{rng: rand.New(rand.NewPCG(seed, 2)), numbers: &numbers, library: true}
	return program, l.file(functions / 4)
}

func (g *generator) printf(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	g.text.WriteString(text)
	g.line += strings.Count(text, "\n")
}

func (g *generator) number() int {
	*g.numbers++
	return *g.numbers - 1
}

func (g *generator) file(functions int) string {
	g.printf("#include \"walk.h\"\n#include <alloca.h>\n#include <cstdlib>\n#include <functional>\n")
	for range functions {
		g.plain = append(g.plain, g.number())
	}
	for range functions / 10 {
		g.throwers = append(g.throwers, g.number())
		g.virtuals = append(g.virtuals, g.number())
	}
	g.printf("struct Virtual { virtual int go(Walk &w) = 0; };\n")
	for _, n := range g.plain {
		g.printf("%s;\n", g.signature(n))
	}
	for _, n := range g.throwers {
		g.printf("static int thr_%d(Walk &w);\n", n)
	}
	for _, n := range g.virtuals {
		g.printf("struct V_%d final : Virtual { int go(Walk &w) override; };\nstatic V_%d v_%d;\n", n, n, n)
	}
	g.printf("static Virtual *const virtuals[] = {")
	for _, n := range g.virtuals {
		g.printf("&v_%d, ", n)
	}
	g.printf("};\n")
	entry := "entries"
	if g.library {
		entry = "library_entries"
		g.printf("extern \"C\" __attribute__((visibility(\"default\"))) int library_entry(Walk &w, unsigned which);\n")
	}
	g.printf("typedef int (*Function)(Walk &);\nextern Function %s[];\n", entry)
	for _, n := range g.plain {
		if g.rng.IntN(4) == 0 {
			g.function(g.number(), "inl")
		}
		g.function(n, "walk")
	}
	for _, n := range g.throwers {
		g.thrower(n)
	}
	for _, n := range g.virtuals {
		g.function(n, "virtual")
	}
	g.printf("Function %s[] = {", entry)
	for _, n := range g.plain {
		g.printf("walk_%d, ", n)
	}
	g.printf("};\n")
	if g.library {
		g.printf("int library_entry(Walk &w, unsigned which)\n{\n\tenum { ID = 9, KIND = 0 };\n\treturn CALL(library_entries[which %% %d](w));\n}\n", functions)
	} else {
		g.printf("extern const unsigned entry_count;\nconst unsigned entry_count = %d;\n", functions)
	}
	return g.text.String()
}

func (g *generator) signature(n int) string {
	if n%2 == 0 {
		return fmt.Sprintf("__attribute__((noinline)) int walk_%d(Walk &w)", n)
	}
	return fmt.Sprintf("int walk_%d(Walk &w)", n)
}

// function writes one function, whose places call others at random. Helpers of its places come
// first.
func (g *generator) function(n int, sort string) {
	var places []string
	for range 2 + g.rng.IntN(3) {
		places = append(places, g.place(n))
	}
	kind := "0"
	switch sort {
	case "inl":
		g.printf("__attribute__((always_inline)) static inline int inl_%d(Walk &w)\n{\n", n)
		kind = "INLINE"
	case "virtual":
		g.printf("int V_%d::go(Walk &w)\n{\n", n)
	default:
		g.printf("%s\n{\n", g.signature(n))
	}
	g.printf("\tenum { ID = %d, KIND = %s };\n\t(void)KIND;\n", n, kind)
	switch {
	case sort == "inl": // alloca would grow the caller's frame
	case g.rng.IntN(6) == 0:
		g.printf("\tchar *room = (char *)alloca(64 + w.next() %% 512);\n\tasm volatile(\"\" : : \"r\"(room) : \"memory\");\n")
	case g.rng.IntN(6) == 0:
		g.printf("\talignas(64) char room[%d];\n\tasm volatile(\"\" : : \"r\"(room) : \"memory\");\n", 64+g.rng.IntN(600))
	}
	g.printf("\tswitch (w.choose(%d)) {\n\tcase 0:\n\t\treturn CALL(take(w));\n", len(places)+1)
	for i, place := range places {
		label := fmt.Sprint("case ", i+1)
		if i+1 == len(places) {
			label = "default"
		}
		g.printf("\t%s: {\n%s\t}\n", label, place)
	}
	g.printf("\t}\n}\n")
	if sort == "inl" {
		g.inlines = append(g.inlines, n)
	}
}

func pick(rng *rand.Rand, list []int) int { return list[rng.IntN(len(list))] }

// callee returns the name of a function that returns normally.
func (g *generator) callee() string {
	switch g.rng.IntN(8) {
	case 0, 1:
		if len(g.inlines) > 0 {
			return fmt.Sprintf("inl_%d(w)", pick(g.rng, g.inlines))
		}
	case 2:
		return fmt.Sprintf("virtuals[w.next() %% %d]->go(w)", len(g.virtuals))
	case 3:
		if g.library {
			return fmt.Sprintf("library_entries[w.next() %% %d](w)", len(g.plain))
		}
		return fmt.Sprintf("entries[w.next() %% %d](w)", len(g.plain))
	}
	return fmt.Sprintf("walk_%d(w)", pick(g.rng, g.plain))
}

// place returns the code of function n at one place.
func (g *generator) place(n int) string {
	walk := pick(g.rng, g.plain)
	switch x := g.rng.IntN(100); {
	case x < 14:
		return fmt.Sprintf("\t\treturn TAIL(walk_%d(w));\n", walk)
	case x < 20: // twice
		return fmt.Sprintf("\t\tint first = CALL(%s);\n\t\treturn first + CALL(%s);\n", g.callee(), g.callee())
	case x < 28:
		return g.sorted()
	case x < 35:
		return fmt.Sprintf("\t\tstd::function<int(Walk &)> f = [&](Walk &w) -> int {\n\t\t\treturn CALL(walk_%d(w));\n\t\t};\n\t\treturn CALL_THROUGH(f(w));\n", walk)
	case x < 43:
		return g.caught(n)
	case x < 46:
		return fmt.Sprintf("\t\treturn CALL(in_signal_handler(w, walk_%d));\n", walk)
	case x < 48:
		return fmt.Sprintf("\t\treturn CALL(on_stack_of_its_own(w, walk_%d));\n", walk)
	case x < 49:
		return fmt.Sprintf("\t\treturn CALL(in_thread(w, walk_%d));\n", walk)
	case x < 55 && !g.library:
		return fmt.Sprintf("\t\treturn CALL(in_library(w, %d));\n", g.rng.IntN(1000))
	case x < 60 && n >= firstFunction: // itself
		return fmt.Sprintf("\t\treturn CALL(%s);\n", g.callee())
	}
	return fmt.Sprintf("\t\treturn CALL(%s);\n", g.callee())
}

// sorted returns a callback from qsort, which compares two elements once.
func (g *generator) sorted() string {
	compare := g.number()
	g.printf("static int cmp_%d(const void *, const void *)\n{\n\tenum { ID = %d, KIND = 0 };\n\tWalk &w = walk_of_thread;\n", compare, compare)
	g.printf("\treturn CALL(%s);\n}\n", g.callee())
	return fmt.Sprintf("\t\tint two[] = {2, 1};\n\t\treturn CALL_THROUGH((qsort(two, 2, sizeof two[0], cmp_%d), 1));\n", compare)
}

// caught returns a call of a function that throws, with a destructor that allocates during
// unwinding, and an allocation in the handler.
func (g *generator) caught(n int) string {
	guard := g.number()
	g.printf("struct Guard_%d {\n\tWalk &w;\n\tint depth;\n\tuint64_t kind;\n\t~Guard_%d();\n};\n", guard, guard)
	g.printf("Guard_%d::~Guard_%d()\n{\n\tenum { ID = %d, KIND = 0 };\n\tw.depth = depth;\n\tw.push(%d, 0, kind | NOLINE);\n", guard, guard, guard, n)
	g.printf("\tCALL(%s);\n\tw.depth = depth;\n}\n", g.callee())
	return fmt.Sprintf("\t\tint depth = w.depth;\n\t\ttry {\n\t\t\tGuard_%d guard{w, depth, KIND};\n\t\t\tCALL(thr_%d(w));\n\t\t} catch (int) {\n\t\t\tw.depth = depth;\n\t\t}\n\t\treturn CALL(%s);\n",
		guard, pick(g.rng, g.throwers), g.callee())
}

func (g *generator) thrower(n int) {
	inner := fmt.Sprintf("walk_%d(w)", pick(g.rng, g.plain))
	if g.rng.IntN(2) == 0 {
		inner = fmt.Sprintf("thr_%d(w)", pick(g.rng, g.throwers))
	}
	g.printf("__attribute__((noinline)) static int thr_%d(Walk &w)\n{\n\tenum { ID = %d, KIND = 0 };\n\tif (w.choose(3) == 1)\n\t\tCALL(%s);\n", n, n, inner)
	g.printf("\telse if (w.left <= 0)\n\t\tCALL(take(w));\n\tthrow 1;\n}\n")
}
