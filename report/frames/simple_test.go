// SPDX-License-Identifier: Apache-2.0

package frames

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

var simpleNames = map[string]string{
	"":                       "",
	"main":                   "main",
	"cudaMalloc":             "cudaMalloc",
	"libtorch.so+0x45dd9b82": "libtorch.so+0x45dd9b82",
	"handle(Request const&)": "handle",
	"c10::reportMemoryUsageToProfiler(void*, long, unsigned long, unsigned long, c10::Device)":                                                "c10::reportMemoryUsageToProfiler",
	"at::detail::empty_cuda(c10::ArrayRef<long>, c10::ScalarType, std::optional<c10::Device>, std::optional<c10::MemoryFormat>)":              "at::detail::empty_cuda",
	"at::Tensor::to(c10::TensorOptions, bool, bool, std::optional<c10::MemoryFormat>) const":                                                  "at::Tensor::to",
	"torch::autograd::generated::AddmmBackward0::apply(std::vector<at::Tensor, std::allocator<at::Tensor> >&&)":                               "torch::autograd::generated::AddmmBackward0::apply",
	"void at::native::gpu_reduce_kernel<float, float, 4, at::native::MeanOps<float, float>, double>(at::TensorIterator&, double)":             "at::native::gpu_reduce_kernel<…>",
	"std::vector<at::Tensor, std::allocator<at::Tensor> > at::native::foreach_unary_op<float, at::native::Sqrt>(c10::ArrayRef<at::Tensor>)":   "at::native::foreach_unary_op<…>",
	"c10::impl::wrap_kernel_functor_unboxed_<c10::impl::detail::X<at::Tensor (long), &at::f>, at::Tensor (long)>::call(c10::OperatorKernel*)": "c10::impl::wrap_kernel_functor_unboxed_<…>::call",
	"Pool<float>::grow(int)":          "Pool<…>::grow",
	"Foo<Bar<int>, (x)4>::bar<a>(b)":  "Foo<…>::bar<…>",
	"unsigned long f<int>(int)":       "f<…>",
	"char const* name<int>(int)":      "name<…>",
	"decltype(auto) f<int>(int)":      "f<…>",
	"decltype (a(b)->c) ns::f<A>(A&)": "ns::f<…>",
	"auto f<int>(int)":                "f<…>",
	"void (*pick<int>(int))(char)":    "pick<…>",
	"int (&row())[3]":                 "row",

	"A::operator<(A const&) const":                         "A::operator<",
	"bool operator< <int>(A<int> const&, A<int> const&)":   "operator<<…>",
	"std::ostream& operator<< <char>(std::ostream&, char)": "operator<<<…>",
	"A::operator->() const":                                "A::operator->",
	"A::operator->*(int)":                                  "A::operator->*",
	"bool A::operator><int>(int)":                          "A::operator><…>",
	"A::operator<=>(A const&) const":                       "A::operator<=>",
	"A::operator()(int) const":                             "A::operator()",
	"void A::operator()<int>(int) const":                   "A::operator()<…>",
	"A::operator[](unsigned long)":                         "A::operator[]",
	"A::operator,(B)":                                      "A::operator,",
	"operator new(unsigned long)":                          "operator new",
	"operator new[](unsigned long, std::align_val_t)":      "operator new[]",
	"operator delete(void*)":                               "operator delete",
	"A::operator bool() const":                             "A::operator bool",
	"A::operator unsigned int() const":                     "A::operator unsigned int",
	"A<int>::operator std::vector<int>() const":            "A<…>::operator std::vector<…>",
	"A::operator newtype()":                                "A::operator newtype",
	"operator\"\" _kb(unsigned long long)":                 "operator\"\" _kb",
	"my_operator(int)":                                     "my_operator",
	"operators::f(int)":                                    "operators::f",

	"(anonymous namespace)::f(int)":                                              "(anonymous namespace)::f",
	"void ns::(anonymous namespace)::f<int>(int)":                                "ns::(anonymous namespace)::f<…>",
	"f(int)::{lambda(int)#1}::operator()(int) const":                             "f::{lambda#1}::operator()",
	"A::f(int) const::{lambda(auto:1&)#2}::operator()<int>(int&) const":          "A::f::{lambda#2}::operator()<…>",
	"f()::{lambda()#1}::operator()() const::{lambda((anonymous class))#2}::g(h)": "f::{lambda#1}::operator()::{lambda#2}::g",
	"f(int)::'lambda'(int)::operator()(int) const":                               "f::'lambda'::operator()",
	"f(int)::Local::~Local()":                                                    "f::Local::~Local",
	"A::{unnamed type#1}::f(int)":                                                "A::{unnamed type#1}::f",
	"std::__cxx11::to_string[abi:cxx11](int)":                                    "std::__cxx11::to_string",
	"name[abi:cxx11](int) const":                                                 "name",
	"f(int) [clone .cold]":                                                       "f",
	"f(int) [clone .isra.0] [clone .cold]":                                       "f",
	"f(int) (.cold)":                                                             "f",
	"main [clone .cold]":                                                         "main",
	"non-virtual thunk to A::f(int)":                                             "A::f",
	"bool f<int>(int) requires C<int>":                                           "f<…>",

	"core::ptr::drop_in_place<alloc::vec::Vec<u8>>":         "core::ptr::drop_in_place<…>",
	"core::ptr::drop_in_place::<alloc::vec::Vec<u8>>":       "core::ptr::drop_in_place::<…>",
	"<alloc::vec::Vec<T,A> as core::ops::drop::Drop>::drop": "<alloc::vec::Vec<…> as core::ops::drop::Drop>::drop",
	"<fn(A) -> B as FnOnce<(A,)>>::call_once":               "<fn(A) -> B as FnOnce<…>>::call_once",
	"foo::<impl core::fmt::Debug for bar::Baz<u8>>::fmt":    "foo::<impl core::fmt::Debug for bar::Baz<…>>::fmt",
	"server::run::{{closure}}":                              "server::run::{{closure}}",
	"server::run::{closure#0}":                              "server::run::{closure#0}",
	"core::ops::function::FnOnce::call_once{{vtable.shim}}": "core::ops::function::FnOnce::call_once{{vtable.shim}}",
	"main.(*Server).handle":                                 "main.(*Server).handle",
	"main.(*Set[...]).Add":                                  "main.(*Set[...]).Add",
	"main.main.func1":                                       "main.main.func1",
	"-[Foo bar:]":                                           "-[Foo bar:]",
	"Lcom/acme/Job;.run(II)V":                               "Lcom/acme/Job;.run(II)V",
	"LazyCompile:*step /srv/a (b).js:12":                    "LazyCompile:*step /srv/a (b).js:12",
	"void at::f<std::array<char, 1>, std::tuple<int, at::…": "at::f<…>",
	"at::f(std::array<char, 1>, std::tuple<int, at::…":      "at::f",
	"at::f(int)::…":                                         "at::f::…",
	"f<(1<<2)>(int)":                                        "f<…>",
	"f<&(A::operator>(A)), ((3)>(2))>(int)":                 "f<…>",
	"f<{lambda(int)#1}>(A<{lambda(int)#1}>)":                "f<…>",
	")":                                                     ")",
	"(":                                                     "(",
	"a b c":                                                 "a b c",
	"<":                                                     "<…>",
}

func TestSimpleName(t *testing.T) {
	for name, want := range simpleNames {
		if got := SimpleName(name); got != want {
			t.Errorf("%s\ngot  %s\nwant %s", name, got, want)
		}
	}
}

func TestSimpleNamesStayAsTheyAre(t *testing.T) {
	for _, name := range simpleNames {
		if got := SimpleName(name); got != name && name != "operator<<…>" { // reads as operator<<
			t.Errorf("%s became %s", name, got)
		}
	}
}

func TestSimpleNameOfAHostileNameTakesLittleTime(t *testing.T) {
	for _, piece := range []string{"(", "<", "{", "[", "((*", "a(*", "<(", "()::", "a()::", "a<b>::", "a {b}", "<>::", "{(}", "operator", "operator<", "[abi:", " const", "a (", ")", ">", "decltype", "decltype(", "decltype ("} {
		for _, name := range []string{strings.Repeat(piece, 1<<17/len(piece)), "f " + strings.Repeat(piece, 1<<17/len(piece)) + ")"} {
			begin := time.Now()
			SimpleName(name)
			if d := time.Since(begin); d > 2*time.Second {
				t.Errorf("128 KiB of %q took %v", piece, d)
			}
		}
	}
}

func FuzzSimpleName(f *testing.F) {
	for name := range simpleNames {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		got := SimpleName(name)
		if (got == "") != (name == "") || len(got) > 2*len(name)+8 || utf8.ValidString(name) && !utf8.ValidString(got) {
			t.Errorf("%q became %q", name, got)
		}
	})
}
