// A device for tests: its tensors lie in host memory, but it refuses what CUDA refuses.
//
// Every operator checks its arguments as CUDA does, and then runs on the CPU by
// torch's own fallback (ATen/native/CPUFallback.h). Views and copies are implemented here.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <ATen/SparseCsrTensorImpl.h>
#include <ATen/autocast_mode.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/_sparse_csr_tensor_unsafe.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/native_batch_norm.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>
#include <unistd.h>

#include <set>

namespace {

using at::Tensor;
using c10::SymInt;
using c10::SymIntArrayRef;
constexpr auto kDevice = c10::DeviceType::PrivateUse1;
const pid_t kOwner = getpid();
// Operators without a deterministic implementation on CUDA, from the documentation of
// torch.use_deterministic_algorithms, those of earlier versions included. Besides: sums of
// nll_loss2d and of floats by cumsum. F.interpolate(mode="bilinear") avoids its operator.
const std::set<std::string> kVaries = {
    "aten::adaptive_max_pool2d_backward", "aten::_adaptive_avg_pool2d_backward",
    "aten::upsample_bilinear2d_backward", "aten::upsample_bicubic2d_backward",
    "aten::_upsample_bilinear2d_aa_backward", "aten::_upsample_bicubic2d_aa_backward",
    "aten::reflection_pad2d_backward", "aten::grid_sampler_2d_backward", "aten::histc",
    "aten::kthvalue", "aten::put_", "aten::scatter_reduce", "aten::scatter_reduce_",
    "aten::max_unpool2d", "aten::_ctc_loss_backward"};

// Indices that CUDA accepts on the host.
const std::set<std::string> kHostIndices = {
    "aten::index", "aten::index_put_", "aten::_index_put_impl_", "aten::_unsafe_index"};

struct Memory final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    TORCH_CHECK(getpid() == kOwner, "Cannot re-initialize the device in a forked subprocess");
    c10::DataPtr data = c10::GetCPUAllocator()->allocate(bytes);
    data.unsafe_set_device({kDevice, 0});
    return data;
  }
  c10::DeleterFnPtr raw_deleter() const override { return c10::GetCPUAllocator()->raw_deleter(); }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }
};
Memory memory;
REGISTER_ALLOCATOR(kDevice, &memory);

struct Guard final : c10::impl::NoOpDeviceGuardImpl<kDevice> {
  c10::Device getDevice() const override { return {kDevice, 0}; }
  c10::Device exchangeDevice(c10::Device) const override { return {kDevice, 0}; }
  c10::Stream getStream(c10::Device) const noexcept override { return own_stream(); }
  c10::Stream getNewStream(c10::Device, int) const override { return own_stream(); }
  c10::Stream exchangeStream(c10::Stream) const noexcept override { return own_stream(); }
  static c10::Stream own_stream() { return c10::Stream(c10::Stream::DEFAULT, {kDevice, 0}); }
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

struct Generator : at::CPUGeneratorImpl {
  Generator() {
    device_ = c10::Device(kDevice, 0);
    key_set_ = c10::DispatchKeySet(c10::DispatchKey::PrivateUse1);
  }
};

at::Generator& drawing() {
  static at::Generator generator = at::make_generator<Generator>();
  return generator;
}

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex) const override { return drawing(); }
  at::Generator getNewGenerator(c10::DeviceIndex) const override {
    return at::make_generator<Generator>();
  }
  at::Device getDeviceFromPtr(void*) const override { return {kDevice, 0}; }
  bool isPinnedPtr(const void*) const override { return false; }
  at::Allocator* getPinnedMemoryAllocator() const override { return c10::GetCPUAllocator(); }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override {
    c10::DataPtr fresh = memory.allocate(bytes);
    memory.copy_data(fresh.get(), storage.data(), std::min(bytes, storage.nbytes()));
    storage.unsafeGetStorageImpl()->set_data_ptr_noswap(std::move(fresh));
    storage.unsafeGetStorageImpl()->set_nbytes(bytes);
  }
};

bool is_ours(const Tensor& t) { return t.defined() && t.device().type() == kDevice; }

// Calls a function with every tensor of an argument.
template <class Function>
void each_tensor(const c10::IValue& value, Function call) {
  if (value.isTensor()) call(value.toTensor());
  if (value.isTensorList()) for (const Tensor& t : value.toTensorVector()) call(t);
  if (value.isOptionalTensorList())
    for (const auto& t : value.toOptionalTensorVector()) if (t) call(*t);
}

// Refuses what CUDA refuses.
void check(const std::string& name, at::ArrayRef<c10::IValue> arguments) {
  bool ours = false, host = false;
  for (const auto& value : arguments) {
    each_tensor(value, [&](const Tensor& t) {
      if (!t.defined()) return;
      ours |= is_ours(t);
      host |= !is_ours(t) && t.dim() > 0;  // numbers may come from the host
    });
    TORCH_CHECK(!value.isGenerator() || value.toGenerator().device().type() == kDevice, name,
                ": expected a generator of the device, got one of the CPU");
  }
  TORCH_CHECK(!(ours && host) || kHostIndices.count(name),
              name, ": expected all tensors to be on the same device");
  bool varies = kVaries.count(name) ||
                (name == "aten::nll_loss2d_forward" && arguments[3].toInt() != 0) ||
                (name == "aten::cumsum" && arguments[0].toTensor().is_floating_point());
  if (varies && at::globalContext().deterministicAlgorithms())
    at::globalContext().alertNotDeterministic(name);
}

template <c10::DispatchKey cpu>
void fall_back(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  size_t count = op.schema().arguments().size(), first = stack->size() - count;
  check(op.schema().name(), at::ArrayRef<c10::IValue>(*stack).slice(first, count));
  at::Generator own, twin;
  for (size_t i = first; i < stack->size(); ++i)
    if ((*stack)[i].isGenerator()) {  // the CPU's operators want a generator of the CPU
      own = (*stack)[i].toGenerator();
      twin = at::detail::createCPUGenerator();
      twin.set_state(own.get_state());
      (*stack)[i] = twin;
    }
  at::native::cpu_fallback(op, stack, false, cpu);
  if (own.defined()) own.set_state(twin.get_state());
}

Tensor empty(SymIntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
             std::optional<at::Device>, std::optional<bool>,
             std::optional<at::MemoryFormat> format) {
  return at::detail::empty_generic(C10_AS_INTARRAYREF_SLOW(size), &memory,
                                   c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                   c10::dtype_or_default(dtype), format);
}

Tensor empty_strided(SymIntArrayRef size, SymIntArrayRef stride,
                     std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                     std::optional<at::Device>, std::optional<bool>) {
  return at::detail::empty_strided_generic(
      C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride), &memory,
      c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), c10::dtype_or_default(dtype));
}

// A tensor of the CPU over the same memory.
Tensor on_host(const Tensor& t) {
  if (!is_ours(t)) return t;
  Tensor view = at::from_blob(t.data_ptr(), t.sizes(), t.strides(), t.options().device(at::kCPU));
  if (t.is_conj()) view._set_conj(true);
  if (t.is_neg()) view._set_neg(true);
  return view;
}

Tensor copy_from(const Tensor& from, const Tensor& to, bool) {
  on_host(to).copy_(on_host(from));
  return to;
}

Tensor copy_and_resize(const Tensor& from, const Tensor& to) {
  to.resize_(from.sizes());
  return copy_from(from, to, false);
}

at::Scalar item(const Tensor& t) {
  return on_host(t).item();
}

const Tensor& resize(const Tensor& t, SymIntArrayRef size, std::optional<at::MemoryFormat> format) {
  auto sizes = C10_AS_INTARRAYREF_SLOW(size);
  if (t.sizes() == sizes && !format) return t;  // keeps its strides
  size_t bytes = (c10::multiply_integers(sizes) + t.storage_offset()) * t.itemsize();
  if (t.storage().nbytes() < bytes) Hooks().resizePrivateUse1Bytes(t.storage(), bytes);
  t.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
  if (format) t.unsafeGetTensorImpl()->empty_tensor_restride(*format);
  return t;
}

Tensor view(const Tensor& t, SymIntArrayRef size) {
  return at::native::view(t, C10_AS_INTARRAYREF_SLOW(size));
}

Tensor reshape_alias(const Tensor& t, SymIntArrayRef size, SymIntArrayRef stride) {
  return at::native::_reshape_alias(t, C10_AS_INTARRAYREF_SLOW(size),
                                    C10_AS_INTARRAYREF_SLOW(stride));
}

Tensor as_strided(const Tensor& t, SymIntArrayRef size, SymIntArrayRef stride,
                  std::optional<SymInt> offset) {
  std::optional<int64_t> start;
  if (offset) start = offset->expect_int();
  return at::native::as_strided_tensorimpl(t, C10_AS_INTARRAYREF_SLOW(size),
                                           C10_AS_INTARRAYREF_SLOW(stride), start);
}

Tensor& set_storage(Tensor& t, at::Storage storage, SymInt offset, SymIntArrayRef size,
                    SymIntArrayRef stride) {
  t.unsafeGetTensorImpl()->set_storage_keep_dtype(storage);
  t.unsafeGetTensorImpl()->set_sizes_and_strides(size, stride);
  t.unsafeGetTensorImpl()->set_storage_offset(offset.expect_int());
  return t;
}

Tensor& set_whole_storage(Tensor& t, at::Storage storage) {
  SymInt count(static_cast<int64_t>(storage.nbytes() / t.itemsize())), one(1);
  return set_storage(t, storage, 0, SymIntArrayRef(&count, 1), SymIntArrayRef(&one, 1));
}

Tensor unfold(const Tensor& t, int64_t dim, int64_t size, int64_t step) {
  return at::native::unfold(t, dim, size, step);
}

Tensor back(const Tensor& t) {
  Tensor copy = t.defined() ? t.to(c10::Device(kDevice, 0)) : t;
  return copy;
}

Tensor convolution(const Tensor& x, const Tensor& weight, const std::optional<Tensor>& bias,
                   SymIntArrayRef stride, SymIntArrayRef padding, SymIntArrayRef dilation,
                   bool transposed, SymIntArrayRef output_padding, SymInt groups) {
  check("aten::convolution", {x, weight});
  TORCH_CHECK(x.scalar_type() == weight.scalar_type(), "convolution: input ", x.scalar_type(),
              " and weight ", weight.scalar_type());
  std::optional<Tensor> b = bias && bias->defined() ? std::optional(on_host(*bias)) : std::nullopt;
  return back(at::convolution_symint(on_host(x), on_host(weight), b, stride, padding, dilation,
                                     transposed, output_padding, groups));
}

std::tuple<Tensor, Tensor, Tensor> convolution_backward(
    const Tensor& grad, const Tensor& x, const Tensor& weight, SymIntArrayRef stride,
    SymIntArrayRef padding, SymIntArrayRef dilation, bool transposed,
    SymIntArrayRef output_padding, SymInt groups, std::array<bool, 3> mask) {
  check("aten::convolution_backward", {grad, x, weight});
  std::array<SymInt, 1> bias{weight.sym_size(0)};
  auto [of_x, of_weight, of_bias] = at::convolution_backward_symint(
      on_host(grad), on_host(x), on_host(weight), SymIntArrayRef(bias), stride, padding, dilation,
      transposed, output_padding, groups, mask);
  return {back(of_x), back(of_weight), back(of_bias)};
}

// Updates the running statistics, which the operator's schema does not declare.
std::tuple<Tensor, Tensor, Tensor> batch_norm(
    const Tensor& x, const std::optional<Tensor>& weight, const std::optional<Tensor>& bias,
    const std::optional<Tensor>& mean, const std::optional<Tensor>& var, bool training,
    double momentum, double eps) {
  check("aten::native_batch_norm", {x});
  auto host = [](const std::optional<Tensor>& t) {
    return t && t->defined() ? std::optional(on_host(*t)) : std::nullopt;
  };
  auto [out, saved_mean, saved_scale] = at::native_batch_norm(
      on_host(x), host(weight), host(bias), host(mean), host(var), training, momentum, eps);
  return {back(out), back(saved_mean), back(saved_scale)};
}

at::SparseCsrTensorImpl* csr(const Tensor& t) {
  return static_cast<at::SparseCsrTensorImpl*>(t.unsafeGetTensorImpl());
}
Tensor csr_values(const Tensor& t) { return csr(t)->values().alias(); }
Tensor csr_rows(const Tensor& t) { return csr(t)->compressed_indices().alias(); }
Tensor csr_columns(const Tensor& t) { return csr(t)->plain_indices().alias(); }
int64_t csr_count(const Tensor& t) { return csr(t)->nnz(); }

Tensor csr_on_host(const Tensor& t) {
  return at::_sparse_csr_tensor_unsafe(on_host(csr_rows(t)), on_host(csr_columns(t)),
                                       on_host(csr_values(t)), t.sizes(), t.scalar_type(),
                                       at::kSparseCsr, c10::Device(at::kCPU), false);
}

Tensor csr_product(const Tensor& sparse, const Tensor& dense) {
  check("aten::mm", {sparse, dense});
  return back(at::mm(csr_on_host(sparse), on_host(dense)));
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&fall_back<c10::DispatchKey::CPU>>());
}
TORCH_LIBRARY_IMPL(_, SparseCsrPrivateUse1, m) {
  m.fallback(
      torch::CppFunction::makeFromBoxedFunction<&fall_back<c10::DispatchKey::SparseCsrCPU>>());
}
TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", empty);
  m.impl("empty_strided", empty_strided);
  m.impl("_copy_from", copy_from);
  m.impl("_copy_from_and_resize", copy_and_resize);
  m.impl("_local_scalar_dense", item);
  m.impl("resize_", resize);
  m.impl("view", view);
  m.impl("_reshape_alias", reshape_alias);
  m.impl("as_strided", as_strided);
  m.impl("native_batch_norm", batch_norm);
  m.impl("unfold", unfold);
  m.impl("set_.source_Storage", set_whole_storage);
  m.impl("set_.source_Storage_storage_offset", set_storage);
  m.impl("convolution_overrideable", convolution);
  m.impl("convolution_backward_overrideable", convolution_backward);
}
TORCH_LIBRARY_IMPL(aten, SparseCsrPrivateUse1, m) {
  m.impl("mm", csr_product);
  m.impl("values", csr_values);
  m.impl("crow_indices", csr_rows);
  m.impl("col_indices", csr_columns);
  m.impl("_nnz", csr_count);
}

}  // namespace

namespace at::autocast {
TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFallthrough());
}
TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
#define LOWER(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
#define FLOAT(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
#define PROMOTE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, promote)
  AT_FORALL_LOWER_PRECISION_FP(LOWER)
  AT_FORALL_FP32(FLOAT)
  AT_FORALL_PROMOTE(PROMOTE)
}
}  // namespace at::autocast

extern "C" {
void pretend_register() { at::RegisterPrivateUse1HooksInterface(new Hooks()); }
void pretend_seed(uint64_t seed) { drawing().set_current_seed(seed); }
}
