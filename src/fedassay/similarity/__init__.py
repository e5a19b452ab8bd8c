"""How alike two images are, and which image of a set is the most alike: PSNR, SSIM, LPIPS, nearest neighbours."""
