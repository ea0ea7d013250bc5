"""Operations of the addons: tensor parallel collectives, distributed norms and losses."""
