// SPDX-License-Identifier: Apache-2.0

package frames

import (
	"testing"

	"github.com/vramprof/vramprof/symbolize/callstack"
)

func TestCodeIsOwnByTheFileItIsIn(t *testing.T) {
	for path, own := range map[string]bool{
		// Programs are own wherever they are installed, except interpreters.
		"/usr/bin/myserver":                      true,
		"/usr/local/bin/train":                   true,
		"/usr/sbin/inferd":                       true,
		"/opt/tritonserver/bin/tritonserver":     true,
		"/opt/conda/bin/server":                  true,
		"/nix/store/0c5b-server-1.2/bin/server":  true,
		"/snap/ollama/105/bin/ollama":            true,
		"/usr/lib/postgresql/15/bin/postgres":    true,
		"/home/ada/build/server (deleted)":       true,
		"/usr/local/cuda/extras/demo/bandwidth":  true,
		"/usr/bin/python3.11":                    false,
		"/opt/conda/bin/python3.12":              false,
		"/home/ada/venv/bin/python":              false,
		"/usr/local/bin/python3.11d (deleted)":   false,
		"/home/ada/.pyenv/versions/3/bin/python": false,

		// Libraries are own beside the program, in /opt and in home folders.
		"/srv/infer/lib/libmodel.so":                         true,
		"/app/libkernels.so.2":                               true,
		"/opt/acme/lib/libacme.so":                           true,
		"/opt/tritonserver/backends/mine/libtriton_mine.so":  true,
		"/home/ada/project/build/lib.linux-x86_64/_fused.so": true,
		"/home/ada/forge/lib/libforge.so":                    true,
		"/usr/src/app/build/libmine.so":                      true,
		"/tmp/torch_extensions/py311_cu124/fused/fused.so":   true,

		// Libraries of the system, of vendors and of packages are not.
		"/usr/lib/x86_64-linux-gnu/libavcodec.so.60":                       false,
		"/lib64/libz.so.1":                                                 false,
		"/lib/x86_64-linux-gnu/libc.so.6":                                  false,
		"/usr/lib64/libgsl.so.27 (deleted)":                                false,
		"/usr/local/lib/libfaiss.so":                                       false,
		"/usr/local/cuda-12.4/targets/x86_64-linux/lib/libfoo.so.11":       false,
		"/usr/local/nvidia/lib64/libx.so":                                  false,
		"/usr/local/tensorrt/lib/libx.so":                                  false,
		"/opt/nvidia/nsight/lib/libx.so":                                   false,
		"/opt/hpcx/ucx/lib/libx.so":                                        false,
		"/opt/intel/oneapi/mkl/lib/libx.so":                                false,
		"/opt/tritonserver/lib/libtritonserver.so":                         false,
		"/run/opengl-driver/lib/libx.so":                                   false,
		"/nix/store/0c5b-gsl-2.7/lib/libgsl.so":                            false,
		"/gnu/store/0c5b-gsl-2.7/lib/libgsl.so":                            false,
		"/snap/ollama/105/usr/lib/libx.so.1":                               false,
		"/snap/ollama/105/lib/libx.so.1":                                   false,
		"/tmp/.mount_AppXyz/usr/lib/libx.so":                               false,
		"/opt/conda/lib/libfaiss.so":                                       false,
		"/home/ada/miniconda3/envs/prod/lib/libfaiss.so":                   false,
		"/home/ada/miniforge3/lib/libfaiss.so":                             false,
		"/apps/spack/linux-ubuntu22/gcc-12/fftw-3.3-abc/lib/libfftw.so":    false,
		"/cvmfs/sw.example.org/versions/lib/libx.so":                       false,
		"/opt/venv/lib/python3.11/site-packages/torch/lib/libtorch_cpu.so": false,
		"/home/ada/venv/lib/python3.11/site-packages/flash_attn_2_cuda.so": false,
		"/home/ada/.local/share/uv/python/cpython/lib/python3.12/lib-dynload/_x.cpython-312-x86_64-linux-gnu.so": false,
		"/srv/infer/lib/libonnxruntime.so.1.17":           false,
		"/srv/infer/lib/libtorch_cuda.so":                 false,
		"/srv/infer/lib/libjemalloc.so.2":                 false,
		"/srv/infer/lib/libcudnn_ops_infer.so.8":          false,
		"/usr/lib/jvm/java-21/lib/server/libjvm.so":       false,
		"/home/linuxbrew/.linuxbrew/lib/libx.so":          false,
		"/home/ada/src/vcpkg_installed/x64/lib/libfmt.so": false,
	} {
		f := callstack.Frame{Function: "f", SystemName: "_Z1fv", Mapping: &callstack.Mapping{Path: path}}
		if got := IsUser(&f); got != own {
			t.Errorf("%s: own code %v, want %v", path, got, own)
		}
	}
}

func TestCodeOfALibraryInAnOwnProgramIsNotOwn(t *testing.T) {
	server := &callstack.Mapping{Path: "/srv/infer/bin/server"}
	for _, c := range []struct {
		function, system, file string
		own                    bool
	}{
		{"handle(Request&)", "_Z6handleR7Request", "/home/ada/infer/src/handle.cc", true},
		{"handle(Request&)", "_Z6handleR7Request", "", true},
		{"main", "main", "/usr/src/app/main.cc", true},
		{"main", "main", "/usr/local/src/infer/main.cc", true},
		{"std::size_t my::count<int>(int)", "_ZN2my5countIiEEmT_", "", true}, // only its result is in std
		{"stdlib_free", "stdlib_free", "", true},
		{"cudaPool", "cudaPool", "", true},

		{"my::pool<int>::grow()", "_ZN2my4poolIiE4growEv", "/usr/include/mypool/pool.h", false},
		{"std::vector<int>::push_back(int&&)", "_ZNSt6vectorIiSaIiEE9push_backEOi", "/usr/include/c++/12/bits/stl_vector.h", false},
		{"std::vector<int>::push_back(int&&)", "_ZNSt6vectorIiSaIiEE9push_backEOi", "", false},
		{"std::vector<int>::size() const", "_ZNKSt6vectorIiSaIiEE4sizeEv", "", false},
		{"operator new(unsigned long)", "_Znwm", "", false},
		{"thrust::device_vector<int>::resize(unsigned long)", "_ZN6thrust13device_vectorIiE6resizeEm", "", false},
		{"f", "f", "/usr/local/cuda-12.4/targets/x86_64-linux/include/thrust/detail/vector_base.inl", false},
		{"f", "f", "/opt/rh/devtoolset-11/root/usr/include/c++/11/bits/allocator.h", false},
		{"f", "f", "/opt/venv/lib/python3.11/site-packages/torch/include/ATen/Functions.h", false},
		{"f", "f", "/opt/conda/include/fmt/format.h", false},
		{"f", "f", "/home/ada/infer/third_party/abseil/absl/base.h", false},
		{"f", "f", "/home/ada/infer/build/_deps/fmt-src/include/fmt/core.h", false},
		{"f", "f", "external/com_google_absl/absl/base.h", false},
		{"alloc::raw_vec::grow", "_ZN5alloc7raw_vec4growE", "/rustc/9fc6b4312/library/alloc/src/raw_vec.rs", false},
		{"cudarc::alloc", "_ZN6cudarc5allocE", "/home/ada/.cargo/registry/src/index.crates.io-6f17d22bba15001f/cudarc-0.11/src/lib.rs", false},
		{"at::Tensor::to(c10::ScalarType) const", "_ZNK2at6Tensor2toEN3c1010ScalarTypeE", "", false},
		{"cudaMalloc", "cudaMalloc", "", false},
		{"__cudart609", "__cudart609", "", false},
		{"__libc_start_call_main", "__libc_start_call_main", "../sysdeps/nptl/libc_start_call_main.h", false},
		{"_start", "_start", "", false},
		{"start_thread", "start_thread", "./nptl/pthread_create.c", false},
	} {
		f := callstack.Frame{Function: c.function, SystemName: c.system, File: c.file, Mapping: server}
		if got := IsUser(&f); got != c.own {
			t.Errorf("%s in %q: own code %v, want %v", c.function, c.file, got, c.own)
		}
	}
}

func TestGeneratedPythonIsNotOwn(t *testing.T) {
	for file, own := range map[string]bool{
		"/home/ada/train.py":                 true,
		"/tmp/ipykernel_812/3141592.py":      true,
		"<string>":                           true,
		"/tmp/torchinductor_ada/c5/c5xq3.py": false,
		// In TORCHINDUCTOR_CACHE_DIR, or in a cache of vLLM.
		"/data/cache/kz/ckz5a7xq3mdnq2wyb6r4ohtguevslcifp3jz7kx2qam5wdy6nrbo.py":                                                             false,
		"/home/user/.cache/vllm/torch_compile_cache/9c41/rank_0_0/inductor_cache/kz/ckz5a7xq3mdnq2wyb6r4ohtguevslcifp3jz7kx2qam5wdy6nrbo.py": false,
		"/home/ada/ckz5a7xq3mdnq2wyb6r4ohtguevslcifp3jz7kx2qam5wdy6nrbo_test.py":                                                             true, "/home/ada/ckz5a7xq3mdnq2wyb6r4ohtguevslcifp3jz7kx2qam5wdy6nrb.py": true,
		"<eval_with_key>.7":                          false,
		"/opt/conda/lib/python3.11/threading.py":     false,
		"/usr/lib/python3/dist-packages/numpy/f.py":  false,
		"<frozen importlib._bootstrap>":              false,
		"/usr/lib/python311.zip/threading.py":        false,
		"/home/ada/lib/python3.11-notes/train.py":    true,
		"/opt/venv/lib/python3.11/site-packages/f.y": false,
	} {
		if got := IsUser(&callstack.Frame{Python: true, File: file}); got != own {
			t.Errorf("%s: own code %v, want %v", file, got, own)
		}
	}
}

// A program with the runtime in itself has functions without a source file between the driver and
// cudaMalloc.
func TestHeadlineOfAStaticallyLinkedProgram(t *testing.T) {
	server := &callstack.Mapping{Path: "/srv/infer/bin/server"}
	list := []callstack.Frame{
		{Function: "cuMemAlloc_v2", SystemName: "cuMemAlloc_v2", Mapping: &callstack.Mapping{Path: "/usr/lib/libcuda.so.1"}},
		{Function: "malloc_device", SystemName: "malloc_device", Mapping: server},
		{Function: "cudaMalloc", SystemName: "cudaMalloc", Mapping: server},
		{Function: "Pool::take", SystemName: "_ZN4Pool4takeEv", Mapping: server},
		{Function: "main", SystemName: "main", Mapping: server},
	}
	if got := Headline(list); got != 3 {
		t.Errorf("headline %d %s, want Pool::take", got, list[got].Function)
	}
	list[1].Whose = callstack.Mine
	if got := Headline(list); got != 1 {
		t.Errorf("headline %d %s, want what Mine marked", got, list[got].Function)
	}
}

func TestHeadlineOfAProgramInLibrariesOnly(t *testing.T) {
	in := func(name, path string) callstack.Frame {
		return callstack.Frame{Function: name, SystemName: name, Mapping: &callstack.Mapping{Path: path}, Address: 1}
	}
	list := []callstack.Frame{
		in("cudaMalloc", "/usr/lib/libcudart.so"), in("at::empty", "/usr/lib/libtorch_cpu.so"),
		in("ffi_call", "/usr/lib/libffi.so.8"), in("app_render", "/usr/lib/app/libapp.so"), in("start_thread", "/usr/lib/libc.so.6"),
	}
	if got := Headline(list); got != 3 {
		t.Errorf("headline %d %s, want app_render", got, list[got].Function)
	}
	list = append(list, in("main", "/usr/bin/app"))
	if got := Headline(list); got != 5 {
		t.Errorf("headline %d %s, want main of the program", got, list[got].Function)
	}
}
