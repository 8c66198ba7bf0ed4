//! A driver wrapped around another one, with hooks around every call.

use std::fmt;
use std::sync::Arc;

use polygrad_core::compute::{Call, ComputeBackend, DevicePtr, DeviceView, Driver, DriverCapabilities, Kernel};
use polygrad_core::{BinaryOp, CompareOp, DType, DeviceInfo, Result, UnaryOp};

use super::DriverCall;

/// Hooks around each call of a driver.
pub trait DriverHooks: Send + Sync + 'static {
    /// Before a call.
    ///
    /// # Errors
    /// Errors become those of the call, which is then not made.
    fn before(&self, _call: &DriverCall<'_>) -> Result<()> {
        Ok(())
    }

    /// After a successful call, with the wrapped driver.
    ///
    /// # Errors
    /// Errors become those of the call.
    fn after(&self, _call: &DriverCall<'_>, _driver: &dyn ComputeBackend) -> Result<()> {
        Ok(())
    }
}

/// A driver of type `D`, with hooks around each call.
pub struct Hooked<D, H> {
    driver: D,
    hooks: Arc<H>,
}

impl<D: ComputeBackend + 'static, H: DriverHooks> Hooked<D, H> {
    /// Wraps a driver.
    pub fn new(driver: D, hooks: Arc<H>) -> Self {
        Self { driver, hooks }
    }

    /// The hooks, to be kept when the driver itself is passed on.
    pub fn hooks(&self) -> Arc<H> {
        Arc::clone(&self.hooks)
    }

    fn around<T>(&self, call: &DriverCall<'_>, run: impl FnOnce(&dyn ComputeBackend) -> Result<T>) -> Result<T> {
        self.hooks
            .before(call)
            .map_err(|error| error.with_op(call.name()).with_device(self.driver.name()))?;
        let result = run(&self.driver)?;
        self.hooks.after(call, &self.driver)?;
        Ok(result)
    }

    fn kernel(&self, call: &Call<'_>) -> Result<()> {
        self.around(&DriverCall::Kernel(*call), |driver| call.run(driver))
    }
}

impl<D: fmt::Debug, H> fmt::Debug for Hooked<D, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Hooked({:?})", self.driver)
    }
}

impl<D: Driver, H: DriverHooks> Driver for Hooked<D, H> {
    const NAME: &'static str = D::NAME;
}

impl<D: ComputeBackend + 'static, H: DriverHooks> ComputeBackend for Hooked<D, H> {
    fn name(&self) -> &str {
        self.driver.name()
    }

    fn init(&self) -> Result<()> {
        self.around(&DriverCall::Init, |driver| driver.init())
    }

    fn is_initialized(&self) -> bool {
        self.driver.is_initialized()
    }

    fn capabilities(&self) -> DriverCapabilities {
        let mut out = self.driver.capabilities();
        // Replays would bypass the hooks.
        out.records = false;
        out
    }

    fn supports(&self, kernel: Kernel, dtype: DType) -> bool {
        self.driver.supports(kernel, dtype)
    }

    fn devices(&self) -> Vec<DeviceInfo> {
        self.driver.devices()
    }

    fn alloc(&self, bytes: usize) -> Result<DevicePtr> {
        self.around(&DriverCall::Alloc(bytes), |driver| driver.alloc(bytes))
    }

    fn free(&self, ptr: DevicePtr) -> Result<()> {
        self.around(&DriverCall::Free(ptr), |driver| driver.free(ptr))
    }

    fn copy_htod(&self, dst: DevicePtr, src: &[u8]) -> Result<()> {
        self.around(&DriverCall::CopyHtod(dst, src.len()), |driver| {
            driver.copy_htod(dst, src)
        })
    }

    fn copy_dtoh(&self, dst: &mut [u8], src: DevicePtr) -> Result<()> {
        self.around(&DriverCall::CopyDtoh(src, dst.len()), |driver| {
            driver.copy_dtoh(dst, src)
        })
    }

    fn copy_dtod(&self, dst: DevicePtr, src: DevicePtr, bytes: usize) -> Result<()> {
        self.around(&DriverCall::CopyDtod(dst, src, bytes), |driver| {
            driver.copy_dtod(dst, src, bytes)
        })
    }

    fn synchronize(&self) -> Result<()> {
        self.around(&DriverCall::Synchronize, |driver| driver.synchronize())
    }

    fn unary_strided(&self, op: UnaryOp, input: &DeviceView, output: &DeviceView) -> Result<()> {
        let call = DriverCall::UnaryStrided(op, output);
        self.around(&call, |driver| driver.unary_strided(op, input, output))
    }

    fn binary_strided(&self, op: BinaryOp, a: &DeviceView, b: &DeviceView, output: &DeviceView) -> Result<()> {
        let call = DriverCall::BinaryStrided(op, output);
        self.around(&call, |driver| driver.binary_strided(op, a, b, output))
    }

    fn compare_strided(&self, op: CompareOp, a: &DeviceView, b: &DeviceView, output: &DeviceView) -> Result<()> {
        let call = DriverCall::CompareStrided(op, output);
        self.around(&call, |driver| driver.compare_strided(op, a, b, output))
    }

    fn select_strided(
        &self,
        condition: &DeviceView,
        a: &DeviceView,
        b: &DeviceView,
        output: &DeviceView,
    ) -> Result<()> {
        let call = DriverCall::SelectStrided(output);
        self.around(&call, |driver| driver.select_strided(condition, a, b, output))
    }

    fn copy_strided(&self, input: &DeviceView, output: &DeviceView) -> Result<()> {
        let call = DriverCall::CopyStrided(output);
        self.around(&call, |driver| driver.copy_strided(input, output))
    }

    polygrad_core::forward_calls!(kernel);
}
