//! Synchronization of tensors that must be equal on all ranks.

use anyhow::Result;
use tch::{Kind, Tensor};

use crate::job::world::World;

/// Copies rank 0's values of these tensors to all ranks. Values must be representable in fp32. All ranks call this
/// together.
pub fn copy_from_rank_0<'a>(tensors: impl IntoIterator<Item = &'a Tensor>, world: &World) -> Result<()> {
    if world.ranks() == 1 {
        return Ok(());
    }
    for tensor in tensors {
        let mut values = Vec::<f32>::try_from(&tensor.f_to_kind(Kind::Float)?.f_flatten(0, -1)?)?;
        world.broadcast(&mut values);
        tensor.shallow_clone().f_copy_(&Tensor::from_slice(&values).f_view_as(tensor)?)?;
    }
    Ok(())
}
