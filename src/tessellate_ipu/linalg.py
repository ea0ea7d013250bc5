"""`tessellate_ipu.linalg`: eigenvectors, QR and Hessenberg forms over tiles."""

from tremula.frontends.jax.tessellate.linalg import ipu_eigh, ipu_hessenberg, ipu_qr

__all__ = ["ipu_eigh", "ipu_hessenberg", "ipu_qr"]
