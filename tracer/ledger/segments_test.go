// SPDX-License-Identifier: Apache-2.0

package ledger

// segmentRules: the allocations that tensors lie in, and the parts of NVML's figure.
var segmentRules = []rule{
	{"tensors and the rest of their segments add up to NVML's figure", `
devices GPU-a
usage t=1 GPU-a=300
alloc t=2 addr=1000 size=4096 stack=1 dev=0
alloc t=2 addr=9000 size=70 stack=5 dev=0
allocator t=3 dev=0 handle=1000
alloc t=3 addr=1000 size=1024 stack=2 dev=0 kind=tensor space=blocks api=torch
alloc t=3 addr=1400 size=512 stack=2 dev=0 kind=tensor space=blocks api=torch
free t=4 addr=1400 space=blocks
alloc t=5 addr=1800 size=512 stack=3 dev=0 kind=tensor space=blocks api=torch
usage t=6 GPU-a=4466
segments 1
totals t=7 dev=0 allocated=1536 reserved=4096 512:2/1024-1/512 1024:1/1024-0/0
blocks 1800+512 1000+1024`, `
process 7
total cuda:0 device live 2/4166 alloc 2/4166 peak 4166@2
total cuda:0 tensor live 2/1536 alloc 3/2048 peak 1536@7
site 1 cuda:0 device live 1/4096 alloc 1/4096 oldest 2 segment with 1536
site 2 cuda:0 tensor live 1/1024 alloc 2/1536 oldest 3 torch
site 3 cuda:0 tensor live 1/512 alloc 1/512 oldest 5 torch
site 5 cuda:0 device live 1/70 alloc 1/70 oldest 2
balance GPU-a cuda:0 usage 4466 peak 4466 baseline 300 live 4166 gap 0
tensors 7 cuda:0 live 2/1536 alloc 3/2048 sampled 2 allocated 1536 reserved 4096 peak 1536 at 7 segments 4096 cached 2560 run 1536 foreign 300
part GPU-a of 4466: tensors 1536 cached 2560 driver 70 foreign 300`},

	{"the cache follows the totals where they were read at another moment than the blocks", `
devices GPU-a
alloc t=2 addr=1000 size=4096 stack=1 dev=0
alloc t=2 addr=9000 size=4096 stack=2 dev=0
allocator t=3 dev=0 handle=2000
alloc t=3 addr=1000 size=1024 stack=3 dev=0 kind=tensor space=blocks api=torch
segments 1 2
totals t=7 dev=0 allocated=1024 reserved=8192 1024:1/1024-0/0
blocks 1000+1024@0 9000+2048@0 20000+512@0`, `
process 7
total cuda:0 device live 2/8192 alloc 2/8192 peak 8192@2
total cuda:0 tensor live 1/1024 alloc 1/1024 peak 1024@7
site 1 cuda:0 device live 1/4096 alloc 1/4096 oldest 2 segment with 341
site 2 cuda:0 device live 1/4096 alloc 1/4096 oldest 2 segment with 683
site 3 cuda:0 tensor live 1/1024 alloc 1/1024 oldest 3 torch
tensors 7 cuda:0 live 1/1024 alloc 1/1024 sampled 1 allocated 1024 reserved 8192 peak 1024 at 7 segments 8192 cached 7168 run 3072`},

	{"tensors from before the attach are known by the allocator's own totals", `
devices GPU-a
usage t=1 GPU-a=10300
alloc t=2 addr=100000 size=1000 stack=1 dev=0
alloc t=2 addr=200000 size=50 stack=9 dev=0
allocator t=3 dev=0 size=6000 handle=2af8
alloc t=3 addr=1000 size=512 stack=2 dev=0 kind=tensor space=blocks api=torch
alloc t=3 addr=100000 size=600 stack=2 dev=0 kind=tensor space=blocks api=torch
usage t=6 GPU-a=11350
totals t=7 dev=0 allocated=6112 reserved=11000 512:2/1112-0/0
blocks 100000+600 1000+512`, `
process 7
total cuda:0 device live 2/1050 alloc 2/1050 peak 1050@2
total cuda:0 tensor live 2/1112 alloc 2/1112 peak 1112@7
site 2 cuda:0 tensor live 2/1112 alloc 2/1112 oldest 3 torch
site 1 cuda:0 device live 1/1000 alloc 1/1000 oldest 2 segment with 600
site 9 cuda:0 device live 1/50 alloc 1/50 oldest 2
balance GPU-a cuda:0 usage 11350 peak 11350 baseline 10300 live 1050 gap 0
tensors 7 cuda:0 live 2/1112 alloc 2/1112 sampled 2 allocated 6112 reserved 11000 peak 6112 at 7 older 5000 oldercached 4488 segments 1000 cached 400 run 400 foreign 300
part GPU-a of 11350: tensors 1112 cached 400 driver 50 older 5000 oldercached 4488 foreign 300`},

	{"older segments that are given back are in no part", `
devices GPU-a
usage t=1 GPU-a=10300
allocator t=3 dev=0 size=6000 handle=2710
totals t=4 dev=0 allocated=6000 reserved=10000
usage t=5 GPU-a=8300
totals t=6 dev=0 allocated=5000 reserved=8000`, `
process 7
balance GPU-a cuda:0 usage 8300 peak 10300 baseline 10300 live 0 gap -2000
tensors 7 cuda:0 live 0/0 alloc 0/0 sampled 0 allocated 5000 reserved 8000 peak 6000 at 3 older 5000 oldercached 3000 foreign 300
part GPU-a of 8300: older 5000 oldercached 3000 foreign 300`},

	{"segments that the allocator gives back after its latest report are not reserved any more", `
alloc t=2 addr=1000 size=4096 stack=1 dev=0
allocator t=2 dev=0 handle=1000
alloc t=3 addr=9000 size=512 stack=1 dev=0
segments 1
totals t=4 dev=0 reported=3 allocated=0 reserved=4608
free t=5 addr=9000
alloc t=5 addr=8000 size=70 stack=9 dev=0
totals t=6 dev=0 reported=3 allocated=0 reserved=4608`, `
process 7
total cuda:0 device live 2/4166 alloc 3/4678 peak 4608@3
site 1 cuda:0 device live 1/4096 alloc 2/4608 oldest 2 segment with 0
site 9 cuda:0 device live 1/70 alloc 1/70 oldest 5
tensors 7 cuda:0 live 0/0 alloc 0/0 sampled 0 reserved 4096 segments 4096 cached 4096`},

	{"a segment on an unknown device is on that of the tensors in it", `
devices GPU-a GPU-b
alloc t=2 addr=1000 size=4096 stack=1
alloc t=2 addr=9000 size=70 stack=1
allocator t=2 dev=1 handle=1000
alloc t=3 addr=1000 size=512 stack=2 dev=1 kind=tensor space=blocks api=torch
totals t=4 dev=1 allocated=512 reserved=4096 512:1/512-0/0
blocks 1000+512@1
free t=5 addr=1000
alloc t=6 addr=1000 size=8192 stack=1`, `
process 7
total ? device live 2/8262 alloc 2/8262 peak 8262@6
total cuda:1 device live 0/0 alloc 1/4096 peak 4096@2
total cuda:1 tensor live 1/512 alloc 1/512 peak 512@4
site 1 ? device live 2/8262 alloc 2/8262 oldest 2
site 2 cuda:1 tensor live 1/512 alloc 1/512 oldest 3 torch
site 1 cuda:1 device live 0/0 alloc 1/4096 oldest 0 segment with 0
tensors 7 cuda:1 live 1/512 alloc 1/512 sampled 1 allocated 512 reserved 4096 peak 512 at 4 oldercached 3584 run 3584`},

	{"blocks without addresses are given out of all segments alike", `
alloc t=2 addr=1000 size=3000 stack=1 dev=0
alloc t=2 addr=9000 size=1000 stack=2 dev=0
allocator t=2 dev=0
alloc t=3 addr=77 size=512 stack=3 dev=0 kind=tensor space=blocks api=torch
segments 1 2
totals t=4 dev=0 512:2/1001-0/0
blocks 40+512 80+489`, `
process 7
total cuda:0 device live 2/4000 alloc 2/4000 peak 4000@2
total cuda:0 tensor live 2/1001 alloc 2/1001 peak 1001@4
site 1 cuda:0 device live 1/3000 alloc 1/3000 oldest 2 segment with 751
site 3 cuda:0 tensor live 2/1001 alloc 2/1001 oldest 3 torch
site 2 cuda:0 device live 1/1000 alloc 1/1000 oldest 2 segment with 250
tensors 7 cuda:0 live 2/1001 alloc 2/1001 sampled 1 segments 4000 cached 2999`},

	{"a segment on an unknown device learns it from a tensor inside, as of the first report", `
devices GPU-a GPU-b
usage t=1 GPU-a=300 GPU-b=400
alloc t=2 addr=1000 size=4096 stack=1 dev=-1
alloc t=2 addr=9000 size=2048 stack=1 dev=-1
allocator t=3 dev=0 handle=1000
allocator t=3 dev=1 handle=800
totals t=4 dev=0 reported=4 allocated=512 reserved=4096 512:1/512-0/0
totals t=4 dev=1 reported=4 allocated=512 reserved=2048 512:1/512-0/0
usage t=5 GPU-a=4396 GPU-b=2448
blocks 1000+512@0 9000+512@1`, `
process 7
total cuda:0 device live 1/4096 alloc 1/4096 peak 4096@2
total cuda:0 tensor live 1/512 alloc 1/512 peak 512@4
total cuda:1 device live 1/2048 alloc 1/2048 peak 2048@2
total cuda:1 tensor live 1/512 alloc 1/512 peak 512@4
site 1 cuda:0 device live 1/4096 alloc 1/4096 oldest 2 segment with 512
site 1 cuda:1 device live 1/2048 alloc 1/2048 oldest 2 segment with 512
site 0 cuda:0 tensor live 1/512 alloc 1/512 oldest 0 torch
site 0 cuda:1 tensor live 1/512 alloc 1/512 oldest 0 torch
balance GPU-a cuda:0 usage 4396 peak 4396 baseline 300 live 4096 gap 0
balance GPU-b cuda:1 usage 2448 peak 2448 baseline 400 live 2048 gap 0
tensors 7 cuda:0 live 1/512 alloc 1/512 sampled 0 allocated 512 reserved 4096 peak 512 at 4 segments 4096 cached 3584 run 3584 foreign 300
tensors 7 cuda:1 live 1/512 alloc 1/512 sampled 0 allocated 512 reserved 2048 peak 512 at 4 segments 2048 cached 1536 run 1536 foreign 400
part GPU-a of 4396: tensors 512 cached 3584 foreign 300
part GPU-b of 2448: tensors 512 cached 1536 foreign 400`},

	{"a segment that is given back is not reserved, also where one GPU alone carries the process", `
devices GPU-a
alloc t=1 addr=1000 size=4096 stack=1 dev=-1
allocator t=1 dev=0 handle=1000
segments 1
totals t=4 dev=0 reported=2 allocated=0 reserved=4096
free t=5 addr=1000`, `
process 7
total cuda:0 device live 0/0 alloc 1/4096 peak 4096@1
site 1 cuda:0 device live 0/0 alloc 1/4096 oldest 0 segment with 0
tensors 7 cuda:0 live 0/0 alloc 0/0 sampled 0`},

	{"a segment on a device that is not known is taken from no allocator", `
devices GPU-a GPU-b
alloc t=1 addr=1000 size=4096 stack=1 dev=-1
segments 1
totals t=4 dev=0 reported=2 allocated=0 reserved=4096
totals t=4 dev=1 reported=2 allocated=0 reserved=4096
free t=5 addr=1000`, `
process 7
total ? device live 0/0 alloc 1/4096 peak 4096@1
site 1 ? device live 0/0 alloc 1/4096 oldest 0 segment with 0
tensors 7 cuda:0 live 0/0 alloc 0/0 sampled 0 reserved 4096 oldercached 4096
tensors 7 cuda:1 live 0/0 alloc 0/0 sampled 0 reserved 4096 oldercached 4096`},

	{"a segment learns its owner from a tensor inside it, and so do its site's others", `
alloc t=1 addr=1000 size=2048 stack=1 dev=0
alloc t=1 addr=3000 size=2048 stack=1 dev=0
alloc t=1 addr=5000 size=2048 stack=3 dev=0
alloc t=1 addr=7000 size=2048 stack=4 dev=0 kind=managed
totals t=2 dev=0 allocated=7168 reserved=8192 512:4/7168-0/0
blocks 2000+4096 1200+512 7000+2048 9000+512`, `
process 7
total cuda:0 device live 3/6144 alloc 3/6144 peak 6144@1
total cuda:0 managed live 1/2048 alloc 1/2048 peak 2048@1
total cuda:0 tensor live 4/7168 alloc 4/7168 peak 7168@2
site 0 cuda:0 tensor live 4/7168 alloc 4/7168 oldest 0 torch
site 1 cuda:0 device live 2/4096 alloc 2/4096 oldest 1 segment with 3072
site 3 cuda:0 device live 1/2048 alloc 1/2048 oldest 1
site 4 cuda:0 managed live 1/2048 alloc 1/2048 oldest 1
tensors 7 cuda:0 live 4/7168 alloc 4/7168 sampled 0 allocated 7168 reserved 8192 peak 7168 at 2 segments 4096 cached 1024 run 2048`},

	{"mappings side by side are one segment, wherever their memory came from", `
alloc t=1 addr=1 size=4096 stack=1 dev=0 kind=vmm space=physical
alloc t=1 addr=2 size=4096 stack=2 dev=0 kind=vmm space=physical
alloc t=1 addr=3 size=4096 stack=3 dev=0 kind=vmm space=physical
alloc t=1 addr=4 size=4096 stack=4 dev=0 kind=imported space=physical
map t=2 addr=10000 size=4096 handle=1
map t=2 addr=11000 size=4096 handle=2
map t=2 addr=13000 size=4096 handle=3
map t=2 addr=14000 size=4096 handle=4
segments 1 2 3
totals t=3 dev=0 allocated=3584 reserved=12288 512:2/3584-0/0
blocks 10e00+1024 13000+2560`, `
process 7
total cuda:0 vmm live 3/12288 alloc 3/12288 peak 12288@1
total cuda:0 imported live 1/4096 alloc 1/4096 peak 4096@1
total cuda:0 tensor live 2/3584 alloc 2/3584 peak 3584@3
site 1 cuda:0 vmm live 1/4096 alloc 1/4096 oldest 1 segment with 512
site 2 cuda:0 vmm live 1/4096 alloc 1/4096 oldest 1 segment with 512
site 3 cuda:0 vmm live 1/4096 alloc 1/4096 oldest 1 segment with 2560
site 4 cuda:0 imported live 1/4096 alloc 1/4096 oldest 1
site 0 cuda:0 tensor live 2/3584 alloc 2/3584 oldest 0 torch
tensors 7 cuda:0 live 2/3584 alloc 2/3584 sampled 0 allocated 3584 reserved 12288 peak 3584 at 3 segments 12288 cached 8704 run 3584`},

	{"a free run goes on from one mapping into the next", `
alloc t=1 addr=1 size=4096 stack=1 dev=0 kind=vmm space=physical
alloc t=1 addr=2 size=4096 stack=2 dev=0 kind=vmm space=physical
alloc t=1 addr=20000 size=4096 stack=3 dev=0
alloc t=1 addr=21000 size=4096 stack=3 dev=0
map t=2 addr=10000 size=4096 handle=1
map t=2 addr=11000 size=4096 handle=2
segments 1 2 3
totals t=3 dev=0 allocated=1024 reserved=16384 512:2/1024-0/0
blocks 10000+512 11e00+512`, `
process 7
total cuda:0 device live 2/8192 alloc 2/8192 peak 8192@1
total cuda:0 vmm live 2/8192 alloc 2/8192 peak 8192@1
total cuda:0 tensor live 2/1024 alloc 2/1024 peak 1024@3
site 3 cuda:0 device live 2/8192 alloc 2/8192 oldest 1 segment with 0
site 1 cuda:0 vmm live 1/4096 alloc 1/4096 oldest 1 segment with 512
site 2 cuda:0 vmm live 1/4096 alloc 1/4096 oldest 1 segment with 512
site 0 cuda:0 tensor live 2/1024 alloc 2/1024 oldest 0 torch
tensors 7 cuda:0 live 2/1024 alloc 2/1024 sampled 0 allocated 1024 reserved 16384 peak 1024 at 3 segments 16384 cached 15360 run 7168`},

	{"a free run ends where another device begins", `
alloc t=1 addr=1 size=4096 stack=1 dev=0 kind=vmm space=physical
alloc t=1 addr=2 size=8192 stack=1 dev=1 kind=vmm space=physical
map t=2 addr=10000 size=4096 handle=1
map t=2 addr=11000 size=8192 handle=2
segments 1
totals t=3 dev=0 allocated=0 reserved=4096
totals t=3 dev=1 allocated=0 reserved=8192
blocks`, `
process 7
total cuda:0 vmm live 1/4096 alloc 1/4096 peak 4096@1
total cuda:1 vmm live 1/8192 alloc 1/8192 peak 8192@1
site 1 cuda:1 vmm live 1/8192 alloc 1/8192 oldest 1 segment with 0
site 1 cuda:0 vmm live 1/4096 alloc 1/4096 oldest 1 segment with 0
tensors 7 cuda:0 live 0/0 alloc 0/0 sampled 0 reserved 4096 segments 4096 cached 4096 run 4096
tensors 7 cuda:1 live 0/0 alloc 0/0 sampled 0 reserved 8192 segments 8192 cached 8192 run 8192`},

	{"segments that overlap, as where a free was lost, have each byte once", `
alloc t=1 addr=1000 size=4096 stack=1 dev=0
alloc t=1 addr=1800 size=4096 stack=1 dev=0
totals t=3 dev=0 allocated=4096 reserved=4096 4096:1/4096-0/0
blocks 1000+4096`, `
process 7
total cuda:0 device live 2/8192 alloc 2/8192 peak 8192@1
total cuda:0 tensor live 1/4096 alloc 1/4096 peak 4096@3
site 1 cuda:0 device live 2/8192 alloc 2/8192 oldest 1 segment with 4096
site 0 cuda:0 tensor live 1/4096 alloc 1/4096 oldest 0 torch
tensors 7 cuda:0 live 1/4096 alloc 1/4096 sampled 0 allocated 4096 reserved 4096 peak 4096 at 3 segments 8192 cached 4096 run 2048`},

	{"a block can reach from an older segment into a booked one", `
alloc t=1 addr=2000 size=4096 stack=1 dev=0
totals t=3 dev=0 allocated=9192 reserved=12288 5000:1/8192-0/0
blocks 1000+8192`, `
process 7
total cuda:0 device live 1/4096 alloc 1/4096 peak 4096@1
total cuda:0 tensor live 1/8192 alloc 1/8192 peak 8192@3
site 0 cuda:0 tensor live 1/8192 alloc 1/8192 oldest 0 torch
site 1 cuda:0 device live 1/4096 alloc 1/4096 oldest 1 segment with 4096
tensors 7 cuda:0 live 1/8192 alloc 1/8192 sampled 0 allocated 9192 reserved 12288 peak 9192 at 3 older 1000 oldercached 3096 segments 4096`},

	{"a tensor shows which device the process uses", `
devices GPU-a GPU-b
usage t=1 GPU-b=300
alloc t=1 addr=1000 size=4096 stack=1 dev=-1
allocator t=1 dev=1 handle=1000
alloc t=1 addr=1000 size=512 stack=2 dev=1 kind=tensor space=blocks api=torch
usage t=2 GPU-b=4396
totals t=3 dev=1 allocated=512 reserved=4096 512:1/512-0/0
blocks 1000+512@1`, `
process 7
total cuda:1 device live 1/4096 alloc 1/4096 peak 4096@1
total cuda:1 tensor live 1/512 alloc 1/512 peak 512@3
site 1 cuda:1 device live 1/4096 alloc 1/4096 oldest 1 segment with 512
site 2 cuda:1 tensor live 1/512 alloc 1/512 oldest 1 torch
balance GPU-b cuda:1 usage 4396 peak 4396 baseline 300 live 4096 gap 0
tensors 7 cuda:1 live 1/512 alloc 1/512 sampled 1 allocated 512 reserved 4096 peak 512 at 3 segments 4096 cached 3584 run 3584 foreign 300
part GPU-b of 4396: tensors 512 cached 3584 foreign 300`},

	{"a process that ended keeps its last totals and blocks", `
alloc t=1 addr=1000 size=4096 stack=1 dev=0
alloc t=1 addr=1000 size=512 stack=2 dev=0 kind=tensor space=blocks api=torch
exit t=2
totals t=2 dev=0 allocated=512 reserved=4096 512:1/512-0/0
blocks 1000+512
alloc t=20 addr=1000 size=640 stack=2 dev=0 kind=tensor space=blocks api=torch
totals t=20 dev=0 allocated=640 reserved=640 640:1/640-0/0`, `
process 7 ended 2
total cuda:0 device live 1/4096 alloc 1/4096 peak 4096@1
total cuda:0 tensor live 1/512 alloc 1/512 peak 512@2
site 1 cuda:0 device live 1/4096 alloc 1/4096 oldest 1 segment with 512
site 2 cuda:0 tensor live 1/512 alloc 1/512 oldest 1 torch
process 7
total cuda:0 tensor live 1/640 alloc 1/640 peak 640@20
site 2 cuda:0 tensor live 1/640 alloc 1/640 oldest 20 torch
tensors 7 cuda:0 live 1/512 alloc 1/512 sampled 1 allocated 512 reserved 4096 peak 512 at 2 segments 4096 cached 3584 run 3584
tensors 7 cuda:0 live 1/640 alloc 1/640 sampled 1 allocated 640 reserved 640 peak 640 at 20`},

	{"of a process that ended nothing is under way that could excuse a contradiction", `
alloc t=1 addr=1000 size=4096 stack=1 dev=0
alloc t=1 addr=1000 size=512 stack=2 dev=0 kind=tensor space=blocks api=torch
exit t=2
totals t=2 dev=0 allocated=511 reserved=4096 512:1/512-0/0
blocks 1000+512
alloc t=20 addr=a0 size=1 stack=1 pid=9
totals t=20 dev=0 allocated=9999 reserved=9999 512:1/512-0/0
blocks`, `
process 7 ended 2
total cuda:0 device live 1/4096 alloc 1/4096 peak 4096@1
total cuda:0 tensor live 1/512 alloc 1/512 peak 512@2
site 1 cuda:0 device live 1/4096 alloc 1/4096 oldest 1 segment with 512
site 2 cuda:0 tensor live 1/512 alloc 1/512 oldest 1 torch
process 9
total ? device live 1/1 alloc 1/1 peak 1@20
site 1 ? device live 1/1 alloc 1/1 oldest 20
tensors 7 cuda:0 live 1/512 alloc 1/512 sampled 1 allocated 511 reserved 4096 peak 511 at 2 segments 4096 cached 3584 run 3584
warning process 7: PyTorch's allocator reports 511 bytes allocated on cuda:0, but tensors of 512 bytes were allocated since the attach and not freed`},
}
