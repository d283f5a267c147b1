//! Synchronization of tensors that must be equal on all ranks.

use anyhow::Result;
use tch::{Kind, Tensor};

use crate::job::world::World;

/// Number of values that are copied at once.
const PART: i64 = 1 << 22;

/// Copies rank 0's values of these tensors to all ranks. Values must be representable in fp32. All ranks call this
/// together.
pub fn copy_from_rank_0<'a>(tensors: impl IntoIterator<Item = &'a Tensor>, world: &World) -> Result<()> {
    if world.ranks() == 1 {
        return Ok(());
    }
    for tensor in tensors {
        if !tensor.is_contiguous() {
            let dense = tensor.f_contiguous()?;
            copy_from_rank_0([&dense], world)?;
            tensor.shallow_clone().f_copy_(&dense)?;
            continue;
        }
        for mut part in tensor.f_view([-1])?.f_split(PART, 0)? {
            let mut values = Vec::<f32>::try_from(&part.f_to_kind(Kind::Float)?)?;
            world.broadcast(&mut values);
            part.f_copy_(&Tensor::from_slice(&values))?;
        }
    }
    Ok(())
}
