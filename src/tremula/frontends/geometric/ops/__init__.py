"""Operations of PyG with static shapes."""
