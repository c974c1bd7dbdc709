// SPDX-License-Identifier: Apache-2.0

package html

// payload is the data part of a page. What there is much of stands in columns: the i-th values of
// all of them belong together. Bytes are numbers, which are exact up to 2^53; times are ns since
// the session began. -1 is "none".
type payload struct {
	Version   int           `json:"v"`
	Title     string        `json:"title"`
	Host      string        `json:"host"`
	Until     string        `json:"until"` // wall clock at the end
	Wall      int64         `json:"wall"`  // likewise, ms since 1970
	Traced    string        `json:"traced"`
	End       uint64        `json:"end"`
	Strings   []string      `json:"strings"`
	Planes    []string      `json:"planes"`
	Apart     []string      `json:"apart"` // of Planes: those in the sum of no GPU
	Processes []processData `json:"processes"`
	GPUs      []gpuData     `json:"gpus"`
	Frames    frameColumns  `json:"frames"`
	Before    int           `json:"before"` // the frame above memory from before the attach; 0: none
	Tree      treeColumns   `json:"tree"`
	Entries   entryColumns  `json:"entries"`
	Chart     *chartData    `json:"chart"`   // null without a timeline
	Opening   *openingData  `json:"opening"` // null: at the end
	Verdicts  bool          `json:"verdicts"`
	Kept      *keptData     `json:"kept"`             // null without a walk
	Judged    int64         `json:"judged,omitempty"` // of verdicts, balance and advice that are older than the rest: as Wall
	Balance   []string      `json:"balance"`
	Advice    []string      `json:"advice"`
	Parts     partsData     `json:"parts"`
	Steps     []stepsData   `json:"steps,omitempty"` // of each training
	Remarks   []string      `json:"remarks"`
	Doubts    []string      `json:"doubts"`
	Warnings  []string      `json:"warnings"`
	Live      *liveData     `json:"live,omitempty"`
}

type processData struct {
	Name   string `json:"name"` // "python3 [42]"
	PID    uint32 `json:"pid"`
	Comm   string `json:"comm"`
	About  string `json:"about,omitempty"`
	Ended  bool   `json:"ended,omitempty"`
	Begin  int64  `json:"begin"`
	Traced string `json:"traced,omitempty"`
	Job    int    `json:"job,omitempty"` // the same of the processes of one job, if there are several; from 1

	Labels map[string]string `json:"labels,omitempty"` // of profiles
	Ranks  map[string]int64  `json:"ranks,omitempty"`  // likewise
}

type gpuData struct {
	Name  string `json:"name"` // "GPU 0", or the CUDA ordinal where that is all that is known
	Model string `json:"model,omitempty"`
	UUID  string `json:"uuid,omitempty"`
	Short string `json:"short,omitempty"` // of the UUID
	Used  uint64 `json:"used,omitempty"`
	Total uint64 `json:"total,omitempty"`
}

// frameColumns are distinct frames; names and files are indices into Strings. Frame 0 is the root
// of all stacks.
type frameColumns struct {
	Name  []int `json:"name"`
	File  []int `json:"file"`
	Line  []int `json:"line"`
	Class []int `json:"class"` // frames.Class

	Dir    []int `json:"dir"`    // what File leaves out at the front of a source file's name
	Object []int `json:"object"` // the file that native code was mapped from
	Simple []int `json:"simple"` // the name in profiles: of native code without parameters
}

// treeColumns is the tree of all stacks from the outermost call inwards, in the order of a walk
// that visits a node before what is below it; node 0 is the root.
type treeColumns struct {
	Depth []int32 `json:"depth"`
	Frame []int32 `json:"frame"`
}

// entryColumns are shares of memory: a site's, or what one process has on one GPU without a site.
type entryColumns struct {
	Node         []int32   `json:"node"`
	Head         []int     `json:"head"` // frame that says best where it comes from
	Plane        []int     `json:"plane"`
	Process      []int     `json:"process"`
	GPU          []int     `json:"gpu"` // -1: host memory
	Kind         []int     `json:"kind"`
	API          []int     `json:"api"`
	Device       []int     `json:"device"` // "cuda:0", "host"
	Live         []int64   `json:"live"`   // at the end
	Objects      []uint64  `json:"objects"`
	Alloc        []uint64  `json:"alloc"`
	AllocObjects []uint64  `json:"allocObjects"`
	Age          []int64   `json:"age"`        // ns, of the oldest live allocation
	Class        []int     `json:"class"`      // what the verdict is: leaking, growing, cache, steady, one-off
	Verdict      []int     `json:"verdict"`    // its evidence
	Incomplete   []int     `json:"incomplete"` // what its figures or its stack lack
	Below        []int     `json:"below"`      // frames at the leaf that profiles leave out
	Callee       []int     `json:"callee"`     // and what the code above them called
	Row          []int     `json:"row"`        // the first entry of the same line of code, process, GPU, plane and kind
	Calls        []int     `json:"calls"`      // of the first entry of a row: by what the stacks of the row differ
	Module       []int     `json:"module"`     // likewise: whose parameters, buffers or gradients most of the row is
	Series       [][]int64 `json:"series"`     // what was live at the moments of Chart.Grid: steps to the next change, change; null: not known
}

// partsData is the reconciliation: the Lines of a row add up to its Usage.
type partsData struct {
	Names    []string      `json:"names"`
	Planes   []string      `json:"planes"` // of Names
	Rows     []partData    `json:"rows"`
	Purposes []purposeData `json:"purposes"`
}

// purposeData is what the memory of a process and GPU is for at the end; of a process that has
// ended, at its peak.
type purposeData struct {
	Process int          `json:"process"`
	GPU     int          `json:"gpu"`
	Time    int64        `json:"time"`  // of the peak; -1: the end
	Title   string       `json:"title"` // "python3 [42] on cuda:0, GPU-1a2b3c4d"
	Bytes   int64        `json:"bytes"`
	Rows    []purposeRow `json:"rows"`
	Notes   []string     `json:"notes"`
}

type purposeRow struct {
	Kind   string         `json:"kind"`
	Name   string         `json:"name"`
	Bytes  int64          `json:"bytes"`
	Known  string         `json:"known,omitempty"` // "holders"
	Pieces []purposePiece `json:"pieces,omitempty"`
}

type purposePiece struct {
	Name  string `json:"name"`
	Bytes uint64 `json:"bytes"`
}

type partData struct {
	Process int      `json:"process"`
	GPU     int      `json:"gpu"`
	Lines   []uint64 `json:"lines"`
	Usage   uint64   `json:"usage"`
	Beyond  uint64   `json:"beyond,omitempty"` // NVML's figure, and taken off Lines
	Idle    uint64   `json:"idle,omitempty"`   // at most this much of the rounding lies unused in pools
}

// chartData is what was held over time. Columns begin with a value; then come differences.
type chartData struct {
	Times []int64    `json:"times"`
	Grid  []int      `json:"grid"` // indices into Times for which all entries are known
	Peak  int        `json:"peak"` // index into Grid: the moment "peak" of report --at; -1: none
	Rows  []rowData  `json:"rows"`
	Marks []markData `json:"marks"`
}

type rowData struct {
	Process int       `json:"process"`
	GPU     int       `json:"gpu"`
	Usage   []int64   `json:"usage"`            // of NVML
	Beyond  []int64   `json:"beyond,omitempty"` // NVML's figure, in no plane
	Planes  [][]int64 `json:"planes"`           // in the order of payload.Planes; empty: always 0
}

type markData struct {
	Time    int64 `json:"time"`
	Kind    int   `json:"kind"` // timeline.MarkKind
	Process int   `json:"process"`
	GPU     int   `json:"gpu"`
	Size    int64 `json:"size"` // -1: unknown
	Head    int   `json:"head"` // frame, 0: none
	API     int   `json:"api"`
}

// keptData is who keeps memory, as of the latest walk of each process. Apart from Driver, the bytes
// of the keepers of one process and GPU add up to those of PyTorch's allocator.
type keptData struct {
	Walks   []walkData    `json:"walks"` // by process
	Tree    treeColumns   `json:"tree"`
	Keepers keeperColumns `json:"keepers"`
	Links   linkColumns   `json:"links"`
}

type walkData struct {
	Process int      `json:"process"`
	Time    int64    `json:"time"`
	First   int64    `json:"first"` // of the walk that Grown compares with; -1: none
	Failure string   `json:"failure,omitempty"`
	Notes   []string `json:"notes,omitempty"`
}

// keeperColumns are holders, and memory of a process on a GPU without one.
type keeperColumns struct {
	Node      []int32  `json:"node"`
	Process   []int    `json:"process"`
	GPU       []int    `json:"gpu"`
	Path      []int    `json:"path"`
	Container []int    `json:"container"` // "list of 1,204"
	Also      []int    `json:"also"`
	Bytes     []uint64 `json:"bytes"`
	Older     []uint64 `json:"older"`    // part of Bytes, from before the attach
	Driver    []uint64 `json:"driver"`   // part of Bytes, of no allocator of PyTorch
	Storages  []uint64 `json:"storages"` // 0: unknown
	InMotion  []uint64 `json:"inMotion"` // of Storages
	Grown     []int64  `json:"grown"`    // bytes since Walks.First; 0: they did not grow
	Entries   []int64  `json:"entries"`  // likewise, of containers
}

// linkColumns are the bytes that a keeper has of an entry.
type linkColumns struct {
	Entry  []int    `json:"entry"`
	Keeper []int    `json:"keeper"`
	Bytes  []uint64 `json:"bytes"`
}

// liveData is the part of a page's data about its server.
type liveData struct {
	Past   bool        `json:"past"`
	From   int64       `json:"from"` // ms since 1970; 0: there is no archive
	To     int64       `json:"to"`
	Errors []errorData `json:"errors"`
	More   uint64      `json:"more"`
}

type errorData struct {
	Wall    int64  `json:"wall"` // ms since 1970
	Time    int64  `json:"time"` // ns since the begin of the session; -1: before it
	Process string `json:"process"`
	Text    string `json:"text"` // "ran out of memory on cuda:0 (wanted 2.00 GiB)"
	Where   string `json:"where,omitempty"`
}

// openingData is where the page of a session opens whose processes have ended: what is left then
// matters less than what they held.
type openingData struct {
	Moment int    `json:"moment"` // index into Chart.Grid
	Text   string `json:"text"`
	What   string `json:"what"` // "the peak"
}
