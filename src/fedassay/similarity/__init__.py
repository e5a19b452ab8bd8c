"""Similarity of two images, and the most similar image of a set: PSNR, SSIM, LPIPS, nearest neighbours."""
