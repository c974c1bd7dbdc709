// SPDX-License-Identifier: Apache-2.0

package frames

import (
	"path"
	"strings"

	"github.com/vramprof/vramprof/internal/lazyregexp"
	"github.com/vramprof/vramprof/symbolize/callstack"
)

var (
	installed       = lazyregexp.New(`(^|/)(site|dist)-packages/`)
	standardLibrary = lazyregexp.New(`(^|/)(lib|lib64)/python[0-9.]+[a-z]?/|(^|/)python[0-9]+\.zip/`)

	// Python that PyTorch generates: <eval_with_key>.7, /tmp/torchinductor_ada/c5/c5x.py, and, in
	// whatever folder, a name of "c" and a SHA-256 in base32 (sha256_hash of
	// torch/_inductor/codecache.py).
	generated = lazyregexp.New(`(^|/)torchinductor_[^/]+/|/c[a-z2-7]{51}\.py$|^<eval_with_key>`)

	interpreterFile = lazyregexp.New(`^(lib)?python[0-9.]*[a-z]{0,3}(\.so[0-9.]*)?( \(deleted\))?$`)

	// Libraries that allocate on behalf of others, wherever they are installed.
	knownLibrary = lazyregexp.New(`^(libc|libm|libdl|librt|libpthread|libgcc_s|libstdc\+\+|libc\+\+|libgomp|libffi|ld-linux[-\w]*|ld-musl[-\w]*)[-.]` +
		`|^(libcu|libnv|libnccl|libtensorflow|libpython|libcaffe|linux-vdso|\[vdso\])` +
		`|^(libonnxruntime|libxgboost|lib_?lightgbm|libopencv_|libarrow|librmm|libraft|libmkl_|libopenblas|libjvm)` +
		`|^(libmpi|libopen-(rte|pal)|libuc[mpst]|libfabric|libibverbs|librdmacm|libtbb|libiomp5|libomp)\b` +
		`|^(libjemalloc|libtcmalloc|libmimalloc|lib[atl]san|libubsan)\b` +
		`|^_ctypes\b|^xla_extension\b|^xla_cuda_plugin\b`)

	cudaUser = lazyregexp.New(`^lib(nccl|cublas|cudnn|cufft|cusolver|cusparse|curand|cutensor|nvinfer|nvonnxparser|nvshmem|nvrtc|nvjpeg|npp)`)

	// sharedObject is the name of a library: libx.so, libx.so.1.2, x.so (deleted). Other files that
	// are mapped as code are programs.
	sharedObject = lazyregexp.New(`\.so($|[. ])`)

	// systemLibrary is a folder for libraries of the system or of a vendor, also inside a snap or
	// an AppImage.
	systemLibrary = lazyregexp.New(`^(/snap/[^/]+/[^/]+|/tmp/\.mount_[^/]+)?(/usr(/local)?)?/lib(32|64|x32|exec)?/` +
		`|^/usr/local/(cuda|nvidia|tensorrt|TensorRT|mpi|openmpi|ucx)[^/]*/` +
		`|^/opt/(nvidia|hpcx|mellanox|rocm|intel|amazon|aws|cray|TensorRT|tensorrt|tritonserver/lib)[^/]*/` +
		`|^/(run|var/run|var/lib)/(nvidia|opengl-driver)[^/]*/` +
		`|^/(nix|gnu)/store/[^/]+/(lib|lib64|include)/` +
		`|^/cvmfs/`)

	// packageFolder is a folder that a package manager fills: lib/ of a conda prefix, spack,
	// Homebrew.
	packageFolder = lazyregexp.New(`/(ana|mini)?conda\d*/(lib|pkgs|include)/|/(mini|mamba)forge\d*/(lib|pkgs|include)/|/micromamba/(lib|pkgs|include)/` +
		`|/envs/[^/]+/(lib|include)/` +
		`|/(spack|easybuild)/.*/(lib|lib64|include)/` +
		`|/\.(linuxbrew|pyenv|sdkman|julia)/` +
		`|/vcpkg_installed/|/\.conan2?/`)

	// librarySource is source code of libraries that is compiled into programs: templates of C++
	// and CUDA, crates, what a build fetches.
	librarySource = lazyregexp.New(`^/usr/(local/)?include/|^/usr/src/(debug|linux|kernels|googletest|gtest)|/include/c\+\+/|/include/(thrust|cub|nv|cuda|torch|ATen|c10)/` +
		`|^/rustc/|/\.cargo/(registry|git)/|(^|/)third[-_]?party/|(^|/)3rdparty/|/_deps/[^/]+-src/|^external/|/bazel-[^/]+/external/` +
		`|^\.{0,2}/?(csu|nptl|sysdeps)/|/glibc-`)

	// libraryName is the mangled name of a function of a library that is compiled into programs:
	// std::vector<T>::push_back, thrust::copy, c10::Storage::data, operator new.
	libraryName = lazyregexp.New(`^_ZN?[VK]*(S[tabsiod]|9__gnu_cxx|10__cxxabiv1|6thrust|3cub|4cuda3std|6cudart|2at|3c10|5torch|3rmm)|^_Z(n[wa]|d[la])` +
		`|^__cudart\d+$`)

	// runtimeCall is a function of CUDA's runtime, which programs can have in themselves. What it
	// calls is CUDA's.
	runtimeCall = lazyregexp.New(`^cuda(Malloc(Async|Managed|Host|Pitch|3D|Array|3DArray|MipmappedArray|FromPoolAsync)?|Host(Alloc|Register)|GraphLaunch)(_ptsz|_v\d+)?$`)

	// beforeMain are functions of the C library that programs have in themselves.
	beforeMain = lazyregexp.New(`^(_start|__libc_start_main(_impl)?|__libc_start_call_main|generic_start_main|start_thread|(__)?clone3?)$`)
)

// IsUser reports whether a frame is the user's own code, in Python or native, and has a name.
func IsUser(f *callstack.Frame) bool { return isUser(f) && (f.Python || hasName(f)) }

// isUser decides whose code a frame is: what Mine marked; else the file that the code is in and,
// where it is known, the source file.
func isUser(f *callstack.Frame) bool {
	if f.Whose != callstack.Unsaid {
		return f.Whose == callstack.Mine && !f.Mark
	}
	return isUserByPath(f)
}

func isUserByPath(f *callstack.Frame) bool {
	if f.Python {
		return ownScripts.of(f.File)
	}
	return isUserNative(f)
}

// isUserFile reports whether a Python file is neither in site-packages nor in the standard library,
// nor generated.
func isUserFile(file string) bool {
	return !strings.HasPrefix(file, "<frozen ") && !installed.MatchString(file) && !standardLibrary.MatchString(file) && !generated.MatchString(file)
}

func isUserNative(f *callstack.Frame) bool {
	switch {
	case f.Python || f.Mark:
		return false
	case f.Mapping == nil:
		return f.Address != 0 // code made at run time
	case libraries.of(f.Mapping.Path) || libraryName.MatchString(f.SystemName) || isRuntimeCall(f) || beforeMain.MatchString(f.Function):
		return false
	}
	return f.File == "" || !librarySources.of(f.File)
}

func isRuntimeCall(f *callstack.Frame) bool {
	return !f.Python && strings.HasPrefix(f.SystemName, "cuda") && runtimeCall.MatchString(f.SystemName)
}

var libraries, librarySources, ownScripts = remember(isLibrary), remember(isLibrarySource), remember(isUserFile)

// isLibrary reports whether a mapped file is a library of the system, of a vendor or of a package.
// A program is the user's own wherever it is installed: /usr/bin/server.
func isLibrary(file string) bool {
	base := path.Base(file)
	if isKnownLibrary(base) || installed.MatchString(file) {
		return true
	}
	return sharedObject.MatchString(base) && (systemLibrary.MatchString(file) || packageFolder.MatchString(file) || standardLibrary.MatchString(file))
}

// isKnownLibrary reports whether a file is a well-known library or the interpreter, by its name.
func isKnownLibrary(base string) bool {
	return callstack.IsTorch(base) || knownLibrary.MatchString(base) || interpreterFile.MatchString(base)
}

func isLibrarySource(file string) bool {
	return librarySource.MatchString(file) || systemLibrary.MatchString(file) || installed.MatchString(file) || packageFolder.MatchString(file)
}
